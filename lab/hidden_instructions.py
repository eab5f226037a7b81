"""Runs a command as on a processor with fewer instructions, to measure what such a processor would choose.

    python -m lab.hidden_instructions avx512,avx_vnni albert-tf tune MODEL --input_file=texts.txt --output_dir=fast

The first argument names what is hidden: `avx512` (all of it, with its VNNI, bfloat16 and float16), `avx_vnni` (the
form of VNNI that processors without AVX-512 have) and `amx`. Engines ask the processor with its instruction CPUID; a
small library, which is compiled with `cc` and loaded before all others, answers it. It works for every dynamically
linked program of the command that handles no SIGSEGV by itself (as Python's `faulthandler` does), and needs Linux on an
Intel or AMD processor that can interrupt CPUID (`cpuid_fault` in /proc/cpuinfo). The C library chose its own functions
before that.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError
from lab import machine

SOURCE = pathlib.Path(__file__).with_suffix(".c")
VARIABLE = "HIDDEN_INSTRUCTIONS"  # which the library reads
CAN_BE_HIDDEN = ("avx512", "avx_vnni", "amx")


def hidden() -> tuple[str, ...]:
    """What is hidden from this process."""
    return tuple(name for name in os.environ.get(VARIABLE, "").split(",") if name)


def instructions() -> list[str]:
    """The instructions that this process sees, of those that decide which kernels an engine takes."""
    has = machine.processor_info().get("flags", "").split()
    deciding = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
    return [name for name in deciding if name in has and not name.startswith(hidden())]


def title_of(instructions: Sequence[str]) -> str:
    """A processor in the words of a reader, by the largest instructions that it has."""
    if "amx_int8" in instructions:
        return "AMX"
    vectors = "AVX-512" if "avx512f" in instructions else "AVX2"
    has_vnni = "avx512_vnni" in instructions or "avx_vnni" in instructions
    return f"{vectors} and VNNI" if has_vnni else f"{vectors} alone"


def with_run(path: str, run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The runs of a file with a new one, which replaces that of the same model and instructions; writes the file."""
    file = pathlib.Path(path)
    runs = json.loads(file.read_text())["runs"] if file.exists() else []
    replaced = (run["model"], run["instructions"])
    runs = [other for other in runs if (other["model"], other["instructions"]) != replaced]
    runs.append(run)
    runs.sort(key=lambda run: (run["model"], len(run["hidden"])))
    files.write_bytes(path, files.json_bytes({"runs": runs}))
    return runs


def environment(names: str, folder: str) -> dict[str, str]:
    """The environment of a command from which instructions are hidden; the library is compiled into a folder.

    Raises:
      UserError: a name is unknown, or the library cannot be compiled.
    """
    unknown = set(names.split(",")) - set(CAN_BE_HIDDEN)
    if unknown:
        raise UserError(f"{', '.join(sorted(unknown))}: expected {', '.join(CAN_BE_HIDDEN)}")
    library = os.path.join(folder, "hidden_instructions.so")
    compiler = ["cc", "-O2", "-shared", "-fPIC", "-o", library, str(SOURCE)]
    try:
        subprocess.run(compiler, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"{SOURCE.name} cannot be compiled: {error}") from None
    preloaded = [library, *os.environ.get("LD_PRELOAD", "").split()]
    return {**os.environ, VARIABLE: names, "LD_PRELOAD": " ".join(preloaded)}


def main(arguments: list[str]) -> int:
    """Runs the command; its exit status."""
    if len(arguments) < 2:
        print(__doc__)
        return 2
    names, *command = arguments
    with tempfile.TemporaryDirectory() as folder:
        try:
            return subprocess.run(command, env=environment(names, folder)).returncode
        except (UserError, OSError) as error:
            print(error, file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
