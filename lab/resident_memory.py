"""Resident memory of a process that embeds many texts of random lengths, without TensorFlow; prints it five times.

.venv.runtime/bin/python lab/resident_memory.py onnx_int8 100000 8    # export, texts, most words of a text
"""

import pathlib
import random
import re
import resource
import sys

from albert_tf import load_predictor

_WORDS = [
    "a",
    "man",
    "is",
    "playing",
    "guitar",
    "on",
    "stage",
    "while",
    "the",
    "cat",
    "sleeps",
    "and",
    "stocks",
    "fall",
    "again",
    "today",
]
_AT_A_TIME = 500


def resident_megabytes() -> float:
    """The memory of this process that is in use, in MB, on Linux."""
    status = pathlib.Path("/proc/self/status").read_text()
    kilobytes = re.search(r"VmRSS:\s+(\d+)", status)
    assert kilobytes
    return int(kilobytes[1]) / 1024


def main(export: str, number: int, most_words: int) -> None:
    """Embeds texts, some at a time."""
    predictor = load_predictor(export)
    rng = random.Random(1)
    for first in range(0, number, _AT_A_TIME):
        lengths = [rng.randint(1, most_words) for _ in range(_AT_A_TIME)]
        predictor.embed([" ".join(rng.choices(_WORDS, k=length)) for length in lengths])
        done = first + _AT_A_TIME
        if done % (number // 5) == 0:
            print(f"{done:,} texts: {resident_megabytes():.0f} MB", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"most: {peak:.0f} MB")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
