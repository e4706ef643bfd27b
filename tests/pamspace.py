"""A mount namespace in which one pooler has its own /etc/pam.d and /etc/passwd. The machine's files do not change."""

import os
import subprocess
from pathlib import Path

import machine

MODULES = ("/lib", "/usr/lib")
_ENTER = 'mount --bind "$1" /etc/pam.d && mount --bind "$2" /etc/passwd && shift 2 && exec "$@"'


def why_not():
    """Returns why a namespace is not available on this machine, or None."""
    if os.geteuid() != 0:
        return "only root can give the pooler an /etc/pam.d of its own"
    if not any(path for folder in MODULES for path in Path(folder).glob("*/security/pam_unix.so")):
        return "libpam-modules is not installed"
    tried = subprocess.run(["unshare", "--mount", "mount", "--bind", "/etc/hostname", "/etc/hostname"],
                           capture_output=True, text=True)
    return f"no mount namespaces here: {tried.stderr.strip()}" if tried.returncode else None


class PamSpace:
    """`services` are the files of /etc/pam.d, `passwords` the passwords in /etc/passwd (None: the user has none)."""

    def __init__(self, folder, services, passwords):
        self.services = folder / "pam.d"
        self.services.mkdir()
        services = {"other": "auth required pam_deny.so\naccount required pam_deny.so\n"} | services
        for name, text in services.items():
            (self.services / name).write_text(text)
        self.passwd = folder / "passwd"
        lines = [f"{user}:{_hash(word)}:{uid}:{uid}::/nonexistent:/bin/false\n"
                 for uid, (user, word) in enumerate(passwords.items(), 60001)]
        self.passwd.write_text(Path("/etc/passwd").read_text() + "".join(lines))

    def command(self):
        """Returns the command that runs the pooler as the service account within the namespace."""
        return ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self.services), str(self.passwd),
                *machine.from_root_to_service()]


def _hash(password):
    if password is None:
        return ""
    made = subprocess.run(["openssl", "passwd", "-6", "-stdin"], input=password, capture_output=True, text=True,
                          check=True)
    return made.stdout.strip()
