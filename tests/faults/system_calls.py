"""Sees every change of a process to files before it happens, and lets it happen or fail.

The process installs a seccomp filter that stops its system calls which change files, until this process answers (Linux
5.5 or later; man 2 seccomp_unotify). So changes by TensorFlow's C++ code, by threads and by child processes are seen as
well as Python's. No compiler and no special rights are needed.
"""

import ctypes
import dataclasses
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Callable

# Name -> (number on x86_64, on aarch64, operation, how the changed file is given, index of the argument). "at" is a
# descriptor of a folder, with the path in the next argument.
_CALLS = {
    "write": (1, 64, "write", "fd", 0),
    "open": (2, None, "open", "path", 0),
    "pwrite64": (18, 68, "write", "fd", 0),
    "writev": (20, 66, "write", "fd", 0),
    "sendfile": (40, 71, "write", "fd", 0),
    "fsync": (74, 82, "sync", "fd", 0),
    "fdatasync": (75, 83, "sync", "fd", 0),
    "truncate": (76, 45, "truncate", "path", 0),
    "ftruncate": (77, 46, "truncate", "fd", 0),
    "rename": (82, None, "rename", "path", 1),
    "mkdir": (83, None, "mkdir", "path", 0),
    "rmdir": (84, None, "remove", "path", 0),
    "creat": (85, None, "open", "path", 0),
    "link": (86, None, "link", "path", 1),
    "unlink": (87, None, "remove", "path", 0),
    "symlink": (88, None, "link", "path", 1),
    "openat": (257, 56, "open", "at", 0),
    "mkdirat": (258, 34, "mkdir", "at", 0),
    "unlinkat": (263, 35, "remove", "at", 0),
    "renameat": (264, 38, "rename", "at", 2),
    "linkat": (265, 37, "link", "at", 2),
    "symlinkat": (266, 36, "link", "at", 1),
    "fallocate": (285, 47, "write", "fd", 0),
    "pwritev": (296, 69, "write", "fd", 0),
    "renameat2": (316, 276, "rename", "at", 2),
    "copy_file_range": (326, 285, "write", "fd", 2),
}
_MACHINES = {"x86_64": (0, 317), "aarch64": (1, 277)}  # column of the numbers, number of seccomp
_COLUMN, _SECCOMP = _MACHINES.get(platform.machine(), (0, 0))
_OF_NUMBER = {call[_COLUMN]: (name, *call[2:]) for name, call in _CALLS.items() if call[_COLUMN]}
# index of the old name of a file that is renamed or linked
_OLD_NAMES = {"rename": 0, "renameat": 0, "renameat2": 0, "link": 0, "linkat": 0}
_OPENS = {"open": 1, "openat": 2}  # index of the flags; opening for reading is no change
_CHANGING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

# linux/seccomp.h, linux/bpf_common.h
_NEW_LISTENER, _UNINTERRUPTED, _SET_FILTER, _NO_NEW_PRIVILEGES = 8, 32, 1, 38
_RECEIVE, _ANSWER, _CONTINUE = 0xC0502100, 0xC0182101, 1
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
# id, process, flags; number, architecture, address, arguments
_NOTIFICATION = struct.Struct("QIIiIQ6Q")
_REPLY = struct.Struct("Qqii")  # id, returned value, error, flags


@dataclasses.dataclass(frozen=True)
class Change:
    """A system call that is about to change a file."""

    operation: str  # open (for writing), write, sync, truncate, rename, mkdir, remove or link
    path: str  # the new name of a file that is renamed
    process: int  # id of the thread that makes the call
    arguments: tuple[int, ...]
    name: str  # of the call
    old_path: str = ""  # of a file that is renamed or linked

    def half_written(self) -> tuple[int, bytes] | None:
        """Where a write begins in its file, and the first half of its bytes; None for other changes."""
        if self.name != "write":
            return None
        descriptor, address, size = self.arguments[:3]
        with open(f"/proc/{self.process}/fdinfo/{descriptor}") as file:
            fields = dict(line.split(":\t") for line in file.read().splitlines() if ":\t" in line)
        is_appended = int(fields["flags"], 8) & os.O_APPEND
        position = os.path.getsize(self.path) if is_appended else int(fields["pos"])
        return position, _memory(self.process, address, size // 2)


def is_supported() -> bool:
    """Whether this system can stop a process at its system calls."""
    try:
        with open("/proc/sys/kernel/seccomp/actions_avail") as file:
            return "user_notif" in file.read() and platform.machine() in _MACHINES
    except OSError:
        return False


def install_filter() -> int:
    """Stops this process, and those that it starts, before every change to a file; call it before it has threads.

    The result is for `Listener` in another process. Without one, changing calls never return.
    """
    numbers = {call: number for number, (call, *_) in _OF_NUMBER.items()}
    steps = [(_LOAD, 0, 0, 0)]
    for name, number in numbers.items():
        if name not in _OPENS:
            steps += [(_JUMP_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY)]
    for name, index in _OPENS.items():
        if name in numbers:
            steps += [
                (_JUMP_IF_EQUAL, 0, 4, numbers[name]),
                (_LOAD, 0, 0, 16 + 8 * index),
                (_JUMP_IF_SET, 0, 1, _CHANGING_FLAGS),
                (_RETURN, 0, 0, _NOTIFY),
                (_RETURN, 0, 0, _ALLOW),
            ]
    steps.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    description = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    # A signal must not interrupt a call while it is answered: a rename, for one, is never interrupted by itself.
    # Linux 5.19 or later can do that.
    for options in (_NEW_LISTENER | _UNINTERRUPTED, _NEW_LISTENER):
        if (listener := libc.syscall(_SECCOMP, _SET_FILTER, options, description)) >= 0:
            return listener
    raise OSError(ctypes.get_errno(), "seccomp")


class Listener:
    """Answers the calls of a process that has called `install_filter`; changes outside `folder` are allowed at once."""

    def __init__(self, descriptor: int, folder: str):
        self.descriptor = descriptor
        self._folder = folder.rstrip("/") + "/"

    def answer(self, decide: Callable[[Change], int]) -> None:
        """Answers the next call: with the errno that `decide` gives, 0 to let it happen, or -1 after a kill."""
        request = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self.descriptor, _RECEIVE, request)
        except OSError as failure:
            if failure.errno == errno.ENOENT:  # a signal or a kill ended the call
                return
            raise
        id, process, _, number, _, _, *arguments = _NOTIFICATION.unpack(request)
        change = self._change(process, number, arguments)
        error = decide(change) if change else 0
        if error < 0:  # killed in the meantime
            return
        reply = _REPLY.pack(id, 0, -error, 0 if error else _CONTINUE)
        try:
            fcntl.ioctl(self.descriptor, _ANSWER, reply)
        except OSError as failure:
            if failure.errno != errno.ENOENT:
                raise

    def _change(self, process: int, number: int, arguments: list[int]) -> Change | None:
        """The change that a call makes in the folder, or None."""
        name, operation, how, index = _OF_NUMBER[number]
        try:
            path, old_path = _path(process, arguments, how, index), ""
            if name in _OLD_NAMES:
                old_path = _path(process, arguments, how, _OLD_NAMES[name])
        except OSError:  # the process has ended, or the descriptor is not open
            return None
        is_none = (operation == "mkdir" and os.path.exists(path)) or path.endswith(" (deleted)")
        is_inside = path.startswith(self._folder) or f"{path}/" == self._folder
        if not is_inside or is_none:
            return None
        return Change(operation, path, process, tuple(arguments), name, old_path)


def _path(process: int, arguments: list[int], how: str, index: int) -> str:
    """The path that an argument of a call gives, see `_CALLS`."""
    if how == "fd":
        return os.path.normpath(os.readlink(f"/proc/{process}/fd/{arguments[index]}"))
    address = arguments[index + (how == "at")]
    path = os.fsdecode(_memory(process, address, 4096).partition(b"\0")[0])
    base = ctypes.c_int(arguments[index]).value if how == "at" else -1
    start = f"fd/{base}" if base >= 0 else "cwd"
    return os.path.normpath(os.path.join(os.readlink(f"/proc/{process}/{start}"), path))


def _memory(process: int, address: int, size: int) -> bytes:
    """Bytes of the memory of a process; less where its memory ends."""
    with open(f"/proc/{process}/mem", "rb", buffering=0) as file:
        file.seek(address)
        content = b""
        while size:
            # Page by page: a path may end just before a page that does not exist.
            part = min(size, 4096 - (address + len(content)) % 4096)
            try:
                read = file.read(part)
            except OSError:
                break
            content += read
            size -= part
        return content
