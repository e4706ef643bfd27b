"""The sockets of another process, as the kernel shows them."""

import contextlib
import ctypes
import os
import socket
from pathlib import Path

_PIDFD_GETFD = 438  # on every architecture


def _copy(pid, number):
    """A copy of another process's descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        copied = libc.syscall(_PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)
    if copied < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return copied


def tcp_sockets(pid):
    """Copies of all TCP sockets that a process holds open; the caller closes them."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(entry).startswith("socket:"):
                one = socket.socket(fileno=_copy(pid, int(entry.name)))
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    found.append(one)
                else:
                    one.close()
    return found


def options_of(pid, wanted, options):
    """Values of (level, name) options of the one TCP socket that `wanted(socket)` picks."""
    sockets = tcp_sockets(pid)
    try:
        picked = [one for one in sockets if _is(one, wanted)]
        assert len(picked) == 1, f"{len(picked)} sockets"
        return [picked[0].getsockopt(*option) for option in options]
    finally:
        for one in sockets:
            one.close()


def _is(one, wanted):
    try:
        return wanted(one)
    except OSError:  # not connected
        return False


def listens(one):
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
