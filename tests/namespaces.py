"""Network namespaces of this machine's own, joined by a bridge, whose links a test can cut.

Namespaces and processes of an earlier run whose test process is gone are removed at the start.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import machine

PREFIX = "pgweir"


def missing(*programs):
    """Returns why namespaces with these programs are not available on this machine, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "setpriv", *programs):
        if shutil.which(program) is None:
            return f"{program} is not installed: tools/install-deps full"
    probe = f"{PREFIX}-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode != 0:
        return "this machine allows no network namespaces"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return None


def _ip(*words, check=True):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr}")
    return done.stdout


def _end_all_in(namespace):
    def are_gone():
        pids = _ip("netns", "pids", namespace, check=False).split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        return not pids
    machine.wait_until(are_gone, 20, f"no process is left in {namespace}")


def _remove(namespace):
    _end_all_in(namespace)
    _ip("netns", "del", namespace)


def _remove_leftovers():
    """Removes the namespaces and bridges of test processes that were killed."""
    for namespace in re.findall(rf"^{PREFIX}-\d+-\S+", _ip("netns", "list"), re.M):
        if not Path(f"/proc/{namespace.split('-')[1]}").exists():
            _remove(namespace)
    for bridge, pid in re.findall(r"^\d+: (pgwb(\d+)):", _ip("-o", "link", "show", "type", "bridge"), re.M):
        if not Path(f"/proc/{pid}").exists():
            _ip("link", "del", bridge)


def within(namespace):
    """Returns the command that runs another command in a namespace, as the service account."""
    return ["ip", "netns", "exec", namespace, *machine.from_root_to_service()]


class Network:
    """A bridge of this machine, and namespaces with an address each."""

    def __init__(self):
        _remove_leftovers()
        self.bridge = f"pgwb{os.getpid()}"[:15]
        taken = _ip("-o", "-4", "address")
        # Other test processes choose a name at the same time.
        wanted = (1 + (os.getpid() + n) % 254 for n in range(254))
        self._net = next(f"10.213.{n}" for n in wanted if f"10.213.{n}." not in taken)
        self.cidr = f"{self._net}.0/24"
        # The address of this machine.
        self.host = f"{self._net}.1"
        self._namespaces = []
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("address", "add", f"{self.host}/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")

    def add(self, name):
        """Returns the name and the address of a new namespace."""
        number = len(self._namespaces) + 2
        namespace, address = f"{PREFIX}-{os.getpid()}-{name}", f"{self._net}.{number}"
        outside = self._link(namespace)
        _ip("netns", "add", namespace)
        self._namespaces.append(namespace)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", outside, "master", self.bridge, "up")
        for words in (("address", "add", f"{address}/24", "dev", "eth0"), ("link", "set", "eth0", "up"),
                      ("link", "set", "lo", "up")):
            _ip("-n", namespace, *words)
        return namespace, address

    def _link(self, namespace):
        return f"pgw{os.getpid()}{namespace.rpartition('-')[2]}"[:15]

    def cut(self, namespace):
        _ip("link", "set", self._link(namespace), "down")

    def restore(self, namespace):
        _ip("link", "set", self._link(namespace), "up")

    def remove(self):
        for namespace in self._namespaces:
            _remove(namespace)
        _ip("link", "del", self.bridge)


class Node:
    """A namespace with processes of the service account."""

    def __init__(self, network, name, folder):
        self.network, self.name = network, name
        self.namespace, self.address = network.add(name)
        self.folder = folder / name
        self.folder.mkdir()
        machine.give_to_service(self.folder)
        self.log = self.folder / "log"
        self._process = None

    @property
    def within(self):
        """Returns the command that runs another command in this namespace, as the service account."""
        return within(self.namespace)

    def spawn(self, *command):
        with open(self.log, "a") as out:
            self._process = subprocess.Popen([*self.within, *command], stdin=subprocess.DEVNULL, stdout=out,
                                             stderr=subprocess.STDOUT, cwd=self.folder)

    def end_all(self):
        _end_all_in(self.namespace)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def kill_main(self):
        """Kills the spawned process, but not its child processes."""
        self._process.kill()
        self._process.wait()
        self._process = None

    def cut(self):
        self.network.cut(self.namespace)

    def restore(self):
        self.network.restore(self.namespace)
