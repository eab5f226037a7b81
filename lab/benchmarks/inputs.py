"""Data for measurements, kept in --work_dir: a corpus, a vocabulary, records, models.

The project's own programs make this data, each in a separate process, before the first measurement that needs it.
"""

import contextlib
import functools
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError
from lab.benchmarks.measure import BenchSettings, Measurement, Values

TEXT, VOCABULARY = "input.text", "input.vocabulary"
RECORDS = {length: f"input.records.{length}" for length in (512, 128)}
_VOCABULARY_SIZES = (30000, 8000)


def predictions_of(length: int) -> int:
    """P, the number of predictions for sequences of a length: the paper's 15 % (77 of 512)."""
    return max(1, round(0.15 * length))


def text_path(settings: BenchSettings) -> str:
    """The corpus, one sentence per line, a blank line between documents."""
    return str(settings.work / "text.txt")


def vocabulary_path(settings: BenchSettings) -> str:
    """The SentencePiece model."""
    return settings.spm_model_file or str(settings.work / "vocabulary.model")


def records_path(settings: BenchSettings, length: int) -> str:
    """A folder of packed pretraining records."""
    return str(settings.work / f"records_{length}")


def record_flags(settings: BenchSettings, text: str, length: int) -> dict[str, Any]:
    """Flags of create_pretraining_data: text, vocabulary, length."""
    return {
        "input_file": text,
        "spm_model_file": vocabulary_path(settings),
        "max_seq_length": length,
        "max_predictions_per_seq": predictions_of(length),
    }


def run_module(module: str, **flags: Any) -> None:
    """Runs a program of the project; if it fails, the `UserError` quotes the last line that it printed."""
    given = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, "-m", module, *given]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise UserError(f"{module}: {lines[-1] if lines else f'ended with {done.returncode}'}")


def cut_text(settings: BenchSettings, megabytes: float) -> str:
    """A file with whole documents of the corpus, of at least the given size; a shorter corpus is repeated."""
    path = settings.work / f"text_{megabytes:g}MB.txt"
    if not path.exists():
        content = b"".join(_documents_of(text_path(settings), int(1e6 * megabytes)))
        files.write_bytes(str(path), content)
    return str(path)


def _documents_of(path: str, wanted: int) -> Iterator[bytes]:
    """The lines of a file, repeated, up to the end of the document with which at least `wanted` bytes are reached."""
    size = 0
    for _ in itertools.count():
        with open(path, "rb") as file:
            for line in file:
                yield line
                size += len(line)
                if size >= wanted and not line.strip():
                    return
        if line.strip():  # separates the last document from the first of the next pass
            yield b"\n" if line.endswith(b"\n") else b"\n\n"


# --- Making them ---


def make_text(settings: BenchSettings) -> Values:
    """Copies --text_file, or makes a sample corpus."""
    path = text_path(settings)
    with _made(path) as partial:
        if settings.text_file:
            from albert_tf.data_prep.corpus import expand_paths

            with open(partial, "wb") as output:
                for source in expand_paths(settings.text_file):
                    with open(source, "rb") as file:
                        shutil.copyfileobj(file, output)
                    output.write(b"\n")
        else:
            megabytes = 2 if settings.quick else 0
            run_module("data_prep.sample_corpus", output_file=partial, max_megabytes=megabytes)
    return {"bytes": os.path.getsize(path)}


def make_vocabulary(settings: BenchSettings) -> Values:
    """Trains a SentencePiece model; it is smaller than the released one if the text is too short for that size."""
    if settings.spm_model_file:
        return {"path": settings.spm_model_file}
    text = cut_text(settings, 2 if settings.quick else 5)
    larger, smaller = _VOCABULARY_SIZES
    with contextlib.suppress(UserError):
        return _train_vocabulary(settings, text, larger)
    return _train_vocabulary(settings, text, smaller)


def _train_vocabulary(settings: BenchSettings, text: str, vocab_size: int) -> Values:
    with _made(vocabulary_path(settings)) as partial:
        flags = {"input_file": text, "output_prefix": partial.removesuffix(".model")}
        run_module("data_prep.train_sentencepiece", **flags, vocab_size=vocab_size)
    return {"vocab_size": vocab_size}


def make_records(settings: BenchSettings, *, length: int) -> Values:
    """Makes pretraining records."""
    text = cut_text(settings, 1 if settings.quick else 5)
    folder = records_path(settings, length)
    flags = {**record_flags(settings, text, length), "dupe_factor": 4, "num_shards": 4}
    run_module("data_prep.create_pretraining_data", output_dir=folder, **flags)
    return {"path": folder}


@contextlib.contextmanager
def _made(path: str) -> Iterator[str]:
    """A temporary path to write to; its file is moved to `path` when it is complete."""
    folder, name = os.path.split(path)
    with files.staged(folder) as staging:
        yield os.path.join(staging, name)


INPUTS = (
    Measurement(TEXT, make_text),
    Measurement(VOCABULARY, make_vocabulary, inputs=(TEXT,)),
    *(
        Measurement(name, functools.partial(make_records, length=length), (TEXT, VOCABULARY))
        for length, name in RECORDS.items()
    ),
)
