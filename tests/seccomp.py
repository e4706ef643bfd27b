"""Processes to which the kernel denies some system calls, as the seccomp profile of a container does."""

import ctypes
import errno
import struct
import threading

# The same numbers on every architecture.
CALLS = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427}

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def _forbid(call):
    """Denies a system call to this thread and to the processes that it starts."""
    steps = b"".join(struct.pack("HBBI", *step) for step in [
        (_LOAD_WORD, 0, 0, 0),
        (_JUMP_IF_EQUAL, 0, 1, CALLS[call]),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ])
    program = _Program(4, steps)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def without(call, action):
    """Runs `action` in a thread to which, and to whose child processes, this system call is denied."""
    failed = []

    def run():
        try:
            _forbid(call)
            action()
        except BaseException as error:  # noqa: BLE001 (raised again below)
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
