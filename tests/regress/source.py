"""PostgreSQL's source, of which the regression tests are a part: from Debian's archive, by apt, which checks it.

Nothing of the system is changed: apt works with lists of its own. `PGWEIR_POSTGRES_SOURCE=/path` names a folder
that has the sources already, as `postgresql-15.18` or as Debian's `postgresql-15_15.18.orig.tar.bz2`.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import cluster as clusters

ARCHIVES = ("debian bookworm", "debian-security bookworm-security", "debian sid")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Unavailable(Exception):
    """Raised when the source is not available on this machine."""


def find(version, folder):
    """The source of a major version, of the installed minor one if there is such; unpacked in `folder`."""
    wanted = _installed(version)
    given = os.environ.get("PGWEIR_POSTGRES_SOURCE")
    places = [Path(given)] if given else []
    for place in places:
        for tree in sorted(place.glob(f"postgresql-{version}.*"), key=lambda path: path.name != f"postgresql-{wanted}"):
            if (tree / "src/test/regress/parallel_schedule").exists():
                return tree
    archives = [path for place in places for path in place.glob(f"postgresql-{version}_*.orig.tar.*")]
    archive = archives[0] if archives else _download(version, wanted, folder)
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    return next(path for path in folder.glob(f"postgresql-{version}.*") if path.is_dir())


def _installed(version):
    told = subprocess.run([clusters.bindir(version) / "postgres", "--version"], capture_output=True, text=True, check=True)
    return re.search(r"PostgreSQL\) ([\d.]+)", told.stdout)[1]


def _download(version, wanted, folder):
    if not shutil.which("apt-get") or not Path(KEYRING).exists():
        raise Unavailable("no apt-get here, or no keys of Debian's: PGWEIR_POSTGRES_SOURCE=/path")
    lists = folder / "sources.list"
    lists.write_text("".join(f"deb-src [signed-by={KEYRING}] http://deb.debian.org/{place} main\n"
                             for place in ARCHIVES))
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    options = ["-qq", "-o", f"Dir::Etc::sourcelist={lists}", "-o", "Dir::Etc::sourceparts=/dev/null",
               "-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}",
               "-o", f"APT::Sandbox::User={'root' if os.geteuid() == 0 else ''}"]
    _apt([*options, "update"], folder)
    known = subprocess.run(["apt-cache", *options[1:], "showsrc", f"postgresql-{version}"], capture_output=True, text=True)
    versions = re.findall(r"^Version: (\S+)", known.stdout, re.MULTILINE)
    # The lists may name a package that has left the archive.
    complaint = f"no postgresql-{version} there"
    for one in sorted(set(versions), key=lambda found: not found.startswith(wanted)):
        complaint = _apt([*options, "source", "--download-only", f"postgresql-{version}={one}"], folder)
        found = sorted(folder.glob(f"postgresql-{version}_*.orig.tar.*"))
        if complaint is None and found:
            return found[0]
    raise Unavailable(complaint)


def _apt(arguments, folder):
    """Runs apt. Returns its error, if it fails."""
    done = subprocess.run(["apt-get", *arguments], cwd=folder, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip()
