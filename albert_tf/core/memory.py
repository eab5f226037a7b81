"""How much memory this process may still use; errors of one line if it is not enough."""

import errno
import importlib.abc
import os
import re
import resource
import sys
from collections.abc import Iterator

from albert_tf.core.errors import UserError, first_line

# In the messages of libraries whose errors have no class of their own.
_MESSAGES = re.compile(
    r"std::bad_alloc|OOM when allocating|[Uu]nable to allocate|[Cc]annot allocate memory|failed to map segment"
    r"|can't start new thread|Out of memory"
)

# Less than the import takes without code that other programs share (measured: 0.25 GB), and addresses with one core
# (1.85 GB; 2.09 GB with two).
_TENSORFLOW_BYTES, _TENSORFLOW_ADDRESSES = 0.2e9, 1.8e9


def require(
    num_bytes: float, what: str, advice: str, processes: int = 1, *, addresses: float = 0
) -> None:
    """Checks that memory for `what` is there.

    Args:
      num_bytes: less than each process certainly needs, so that nothing is rejected that would work.
      advice: what to change, "lower --batch_size".
      addresses: bytes of address space, if a process certainly needs more of these.

    Raises:
      UserError: the machine, a container or a limit of the process has less.
    """
    for limit, left in limits():
        needed = max(num_bytes, addresses) if limit == _OF_PROCESS else num_bytes * processes
        if needed > left:
            raise UserError(
                f"{what} needs at least {_amount(needed)} of memory, {limit} has {_amount(left)} left: {advice}"
            )


class ImportCheck(importlib.abc.MetaPathFinder):
    """Rejects the import of TensorFlow without memory for it: it would abort, or the system would kill the process."""

    @classmethod
    def install(cls) -> None:
        """Adds the check to this process, once."""
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.insert(0, cls())

    def find_spec(self, fullname: str, *_: object) -> None:
        """Finds nothing."""
        if fullname == "tensorflow":
            advice = "run on a larger machine, or raise the limit"
            require(_TENSORFLOW_BYTES, "TensorFlow", advice, addresses=_TENSORFLOW_ADDRESSES)


def is_exhausted(error: BaseException) -> bool:
    """Whether an error says that memory could not be allocated."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or bool(_MESSAGES.search(str(error)))


def exhausted(error: Exception, advice: str) -> UserError:
    """The error for memory that could not be allocated."""
    reason = first_line(error) if str(error) else "no more can be allocated"
    return UserError(f"out of memory ({reason}){advice and ': ' + advice}")


def limits(root: str = "/") -> Iterator[tuple[str, float]]:
    """Descriptions of the limits of this process, and the bytes that each leaves; none on systems but Linux.

    Memory of cached files counts as free, and so does swap space: the system takes both before a process fails.
    """
    machine = _numbers(os.path.join(root, "proc/meminfo"))
    swap = 1024 * machine.get("SwapFree", 0)
    if "MemAvailable" in machine:
        yield "the machine", 1024 * machine["MemAvailable"] + swap
    for folder in _control_groups(root):
        limit, used = (_number(folder, *names) for names in (_LIMITS, _USED))
        cached = _numbers(os.path.join(folder, "memory.stat"))
        files = cached.get("total_cache", cached.get("file", 0))
        if limit is not None and used is not None:
            yield "the container (its control group)", limit - used + files + swap
    size, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _read(os.path.join(root, "proc/self/statm")).split()
    if size != resource.RLIM_INFINITY and pages:
        yield _OF_PROCESS, size - int(pages[0]) * resource.getpagesize()


_OF_PROCESS = "the process (ulimit -v)"
_LIMITS = ("memory.max", "memory.limit_in_bytes")  # of version 2 and of version 1
_USED = ("memory.current", "memory.usage_in_bytes")


def _control_groups(root: str) -> Iterator[str]:
    """The folders of the control groups of this process, from its own to the outermost."""
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = os.path.join(root, "sys/fs/cgroup", "memory" if controllers else "")
        while True:  # inside a container, its own group is the top
            yield os.path.join(top, path.strip("/"))
            if path.strip("/") == "":
                break
            path = os.path.dirname(path.rstrip("/"))


def _number(folder: str, *names: str) -> float | None:
    """The number in the first of these files that has one; "max" is no number."""
    contents = (_read(os.path.join(folder, name)).strip() for name in names)
    return next((float(content) for content in contents if content.isdigit()), None)


def _numbers(path: str) -> dict[str, int]:
    """The numbers in lines such as "MemFree:  12 kB" or "file 12"."""
    return {name: int(value) for name, value in re.findall(r"^(\w+):?\s+(\d+)", _read(path), re.M)}


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _amount(num_bytes: float) -> str:
    return f"{max(0, num_bytes) / 1e9:,.2f} GB"
