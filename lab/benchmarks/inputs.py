"""Data for measurements, kept in --work_dir: a corpus, a vocabulary, records.

Each function makes what is missing, with the project's own programs in processes of their own, and returns its path.
"""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError
from lab.benchmarks.measure import BenchSettings


def predictions_of(length: int) -> int:
    """P, the number of predictions for sequences of a length: the paper's 15 % (77 of 512)."""
    return max(1, round(0.15 * length))


def run_module(module: str, **flags: Any) -> None:
    """Runs a program of the project; if it fails, the `UserError` quotes the last line that it printed."""
    words = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise UserError(f"{module}: {lines[-1] if lines else f'ended with {done.returncode}'}")


def corpus(settings: BenchSettings) -> str:
    """The documentation of the installed packages, one sentence per line, a blank line between documents."""
    path = settings.work / "text.txt"
    if not path.exists():
        megabytes = 2 if settings.quick else 0
        run_module("data_prep.sample_corpus", output_file=path, max_megabytes=megabytes)
    return str(path)


def cut_text(settings: BenchSettings, megabytes: float) -> str:
    """A file with whole documents of the corpus, of at least the given size; a shorter corpus is repeated."""
    path = settings.work / f"text_{megabytes:g}MB.txt"
    if not path.exists():
        content = b"".join(_documents_of(corpus(settings), int(1e6 * megabytes)))
        files.write_bytes(str(path), content)
    return str(path)


def _documents_of(path: str, least_bytes: int) -> Iterator[bytes]:
    """The lines of a file, repeated, up to the end of the document with which at least so many bytes are reached."""
    size = 0
    for _ in itertools.count():
        with open(path, "rb") as file:
            for line in file:
                yield line
                size += len(line)
                if size >= least_bytes and not line.strip():
                    return
        yield b"\n"  # separates the last document from the first of the next pass


def vocabulary(settings: BenchSettings) -> str:
    """A SentencePiece model; the corpus has too few words for the size of the released one."""
    prefix = settings.work / "vocabulary"
    text = cut_text(settings, 2 if settings.quick else 5)
    path = f"{prefix}.model"
    if not files.exists(path):
        flags = {"input_file": text, "output_prefix": prefix, "vocab_size": 8000}
        run_module("data_prep.train_sentencepiece", **flags)
    return path


def record_flags(settings: BenchSettings, text: str, length: int) -> dict[str, Any]:
    """Flags of create_pretraining_data: text, vocabulary, length."""
    return {
        "input_file": text,
        "spm_model_file": vocabulary(settings),
        "max_seq_length": length,
        "max_predictions_per_seq": predictions_of(length),
    }


def records(settings: BenchSettings, length: int) -> str:
    """A folder of packed pretraining records."""
    folder = settings.work / f"records_{length}"
    if not (folder / "metadata.json").exists():
        text = cut_text(settings, 1 if settings.quick else 5)
        flags = {**record_flags(settings, text, length), "dupe_factor": 4, "num_shards": 4}
        run_module("data_prep.create_pretraining_data", output_dir=folder, **flags)
    return str(folder)
