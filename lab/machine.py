"""The processor and the commit of the code, which are recorded with results."""

import pathlib
import platform
import subprocess


def processor_info() -> dict[str, str]:
    """The first processor's properties by name, from /proc/cpuinfo of Linux; {} on other systems."""
    path = pathlib.Path("/proc/cpuinfo")
    first = path.read_text().partition("\n\n")[0].splitlines() if path.exists() else []
    pairs = (line.partition(":") for line in first)
    return {name.strip(): value.strip() for name, _, value in pairs}


def processor_name() -> str:
    """The processor's model name, or its architecture if the system does not report the model."""
    return processor_info().get("model name") or platform.processor() or platform.machine()


def commit(folder: str, *, short: bool = False) -> str:
    """The hash of a folder's commit, with "+" if Python or TOML files have changed since; "" outside a checkout."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", folder, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    # Only code is compared, because experiments write other files.
    code = (":(top)*.py", ":(top)*.toml")
    try:
        is_changed = git("status", "--porcelain", "--untracked-files=no", "--", *code)
        head = git("rev-parse", *(["--short"] if short else []), "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if is_changed else "")
