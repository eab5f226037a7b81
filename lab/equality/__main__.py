"""What must stay equal: runs the programs of a checkout on fixed data, and compares the values of two checkouts.

    python -m lab.equality --checkout=. --output_file=after.json [--parts=records,tasks]
    python -m lab.equality --compare docs/results/data/equality_before.json after.json

Only programs are called, never functions, so that every version with the same flags can be measured. On the same
machine, values are equal bit for bit; --tolerance allows for another processor.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

from lab.equality import comparison, parts
from lab.equality.checkout import Checkout, ProgramFailed
from lab.equality.data import ROOT


def processor_seconds() -> float:
    """Processor time of the programs that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def commit_of(folder: pathlib.Path) -> str:
    """The commit of a checkout."""
    command = ["git", "-C", str(folder), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def measure(folder: str, names: list[str], output_file: str) -> None:
    """Writes the values of the parts, after each part; a part that fails has its error instead."""
    values = {}
    with tempfile.TemporaryDirectory() as work:
        checkout = Checkout(folder, work)
        for name in names:
            try:
                values[name] = parts.PARTS[name](checkout)
                print(f"{name}: measured", flush=True)
            except ProgramFailed as error:  # the other parts are still measured
                values[name] = {"failed": str(error)}
                print(f"{name}: {error}", flush=True)
            content = {"commit": commit_of(checkout.folder), "values": values}
            text = json.dumps(content, indent=1, ensure_ascii=False)
            pathlib.Path(output_file).write_text(f"{text}\n", encoding="utf-8")
        checkout.close()
    print(f"{processor_seconds():.0f} seconds of processor time")


def compare(before: str, after: str, tolerance: float) -> int:
    """Prints what differs; returns 1 if anything does."""
    values_before = comparison.read(before)
    values_after = comparison.read(after)
    lines = comparison.differences(values_before, values_after, tolerance)
    compared = ", ".join(name for name in values_before if name in values_after)
    if lines:
        print(f"{len(lines)} values differ, the largest difference first:")
        print("\n".join(lines))
        return 1
    print(f"equal: {compared or 'nothing was compared'}")
    return 0 if compared else 1


def main() -> int:
    """See the module."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--checkout", default=str(ROOT), help="Folder whose programs are run.")
    parser.add_argument("--output_file", default="equality.json", help="JSON file of the values.")
    parser.add_argument(
        "--parts", default=",".join(parts.PARTS), help="Parts, separated by commas."
    )
    parser.add_argument("--compare", nargs=2, metavar="JSON", help="Prints how two files differ.")
    parser.add_argument("--tolerance", type=float, default=0.0, help="Difference that is allowed.")
    arguments = parser.parse_args()
    if arguments.compare:
        return compare(*arguments.compare, arguments.tolerance)
    names = arguments.parts.split(",")
    unknown = [name for name in names if name not in parts.PARTS]
    if unknown:
        parser.error(f"--parts must be of {', '.join(parts.PARTS)}, got {', '.join(unknown)}")
    measure(arguments.checkout, names, arguments.output_file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
