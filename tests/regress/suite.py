"""Runs PostgreSQL's regression tests against an address, and returns the names of failed tests."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import cluster as clusters
import machine
import pooler as poolers
from regress import source

# The settings of servers that pg_regress starts itself, and the server's defaults where the test clusters differ.
SETTINGS = {
    "max_prepared_transactions": 2, "log_checkpoints": "on", "log_lock_waits": "on", "log_temp_files": "128kB",
    "log_line_prefix": "%m %b[%p] %q%a ", "autovacuum": "on", "shared_buffers": "128MB", "full_page_writes": "on",
    "synchronous_commit": "on", "log_min_messages": "warning", "wal_level": "replica", "max_wal_size": "1GB",
}
DATABASE = """
CREATE DATABASE regression TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C';
ALTER DATABASE regression SET lc_messages TO 'C';
ALTER DATABASE regression SET lc_monetary TO 'C';
ALTER DATABASE regression SET lc_numeric TO 'C';
ALTER DATABASE regression SET lc_time TO 'C';
ALTER DATABASE regression SET bytea_output TO 'hex';
ALTER DATABASE regression SET timezone_abbreviations TO 'Default';
"""
# Functions in C that the tests call, built as PostgreSQL's makefiles build them.
DEFINED = ("-D_GNU_SOURCE", "-DREFINT_VERBOSE")
LIBRARIES = ("src/test/regress/regress.c", "contrib/spi/autoinc.c", "contrib/spi/refint.c")
CONNECTIONS = 20  # at a time
LIMIT_S = 1200


@dataclass
class Suite:
    """The tests of one version, ready to run."""

    version: int
    binaries: object
    tree: Path
    libraries: Path

    @classmethod
    def prepare(cls, version, binaries, folder):
        folder.mkdir()
        tree = source.find(version, folder)
        libraries = folder / "libraries"
        libraries.mkdir()
        includes = _config(version, "--includedir-server")
        for path in LIBRARIES:
            made = libraries / Path(path).with_suffix(".so").name
            subprocess.run(["cc", "-O1", "-fPIC", "-shared", *DEFINED, f"-I{includes}", "-o", made, tree / path],
                           check=True)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        return cls(version, binaries, tree / "src/test/regress", libraries)

    def cluster(self, folder, library=None):
        """A separate server for the regression tests."""
        folder.mkdir()
        machine.give_to_service(folder)
        data = folder / "template"
        subprocess.run([self.binaries.path("initdb"), "-D", data, "-U", clusters.SUPERUSER, "-A", "trust", "-E", "UTF8",
                        "--no-locale", "--no-sync", "--no-instructions"],
                       check=True, stdout=subprocess.DEVNULL, cwd=folder, **machine.as_service())
        made = clusters.Cluster.copy_of(data, self.binaries, folder, library)
        made.start(**SETTINGS)
        for statement in DATABASE.strip().split("\n"):
            made.run(statement, dbname="postgres")
        return made

    def run(self, host, port, folder):
        """Runs all tests; gives (how many, the names of those that failed)."""
        out = folder / "out"
        for name in ("results", "sql", "expected"):
            (out / name).mkdir(parents=True)
        for path in (out, *out.iterdir()):
            machine.give_to_service(path)
        programs = Path(self.binaries.path("psql")).parent
        program = programs.parent / "lib/pgxs/src/test/regress/pg_regress"
        with open(folder / "pg_regress.log", "w") as log:
            subprocess.run(
                [program, "--use-existing", "--dbname=regression", f"--host={host}", f"--port={port}",
                 f"--user={clusters.SUPERUSER}", f"--bindir={programs}",
                 f"--dlpath={self.libraries}", f"--inputdir={self.tree}", f"--outputdir={out}",
                 f"--max-connections={CONNECTIONS}", f"--schedule={self.tree / 'parallel_schedule'}"],
                stdout=log, stderr=subprocess.STDOUT, timeout=LIMIT_S, cwd=out,
                env={"PATH": os.environ["PATH"], "HOME": str(folder), "PGCONNECT_TIMEOUT": "60"}, **machine.as_service())
        return outcome((folder / "pg_regress.log").read_text())


def outcome(log):
    """How many tests ran, and which failed: TAP since PostgreSQL 16, words before."""
    good = re.findall(r"^ok \d+ +[-+] (\S+)|^(?:test |     )(\S+) +\.\.\. ok", log, re.MULTILINE)
    bad = re.findall(r"^not ok \d+ +[-+] (\S+)|^(?:test |     )(\S+) +\.\.\. FAILED", log, re.MULTILINE)
    failed = sorted(one or other for one, other in bad)
    return len(good) + len(bad), failed


def _config(version, what):
    told = subprocess.run([clusters.bindir(version) / "pg_config", what], check=True, capture_output=True, text=True)
    return told.stdout.strip()


def keep(folder, name):
    """Copies the differences to a folder."""
    found = folder / "out" / "regression.diffs"
    if found.exists():
        target = poolers.ROOT / "target" / "regress"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(found, target / f"{name}.diffs")
