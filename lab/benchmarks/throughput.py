r"""Texts per second for lists of texts of mixed lengths: ours, transformers' pipeline and sentence-transformers.

    python -m lab.benchmarks.throughput --text_file=wikipedia --output_file=throughput.json
    python -m lab.benchmarks.throughput --text_file=wikipedia --output_file=batches.json \
        --only_ours --batches=32x1024,32x2048,128x2048,128x4096

Texts are paragraphs of the corpus and single sentences of them. Everything is in one process, on the same cores, and
computes the same classifier of the size albert-base; sentence-transformers computes its encoder. Each round has other
texts, and gives the same to all in turn. Their number is chosen such that the slowest needs about --slowest_seconds.
"""

import dataclasses
import json
import os
import pathlib
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from albert_tf.core import files, flags
from albert_tf.core.settings import setting
from albert_tf.core.tables import table
from lab.benchmarks import inputs, run
from lab.benchmarks.measure import BenchSettings, load_of_others

Call = Callable[[list[str]], Any]
_LENGTH, _WARM_UP = 128, 16
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThroughputSettings(BenchSettings):
    """Texts, rounds and the file of results."""

    texts: int = setting(5000, "Number of texts from which the rounds take theirs.", minimum=64)
    slowest_seconds: float = setting(60.0, "About the time of the slowest in a round.", minimum=1)
    rounds: int = setting(3, "Number of rounds.", minimum=1)
    only_ours: bool = setting(False, "Whether to leave out the other libraries.")
    threads: int = setting(2, "Number of cores, and of threads of each library.", minimum=1)
    batches: str = setting("32x1024", "Our batches, as TEXTSxTOKENS, separated by commas.")
    output_file: str = setting("", "JSON file; a table is beside it.", required=True)


def main(settings: ThroughputSettings) -> None:
    """Measures, and writes the file and its table."""
    run.make_inputs((inputs.ONNX_EXPORT, inputs.INT8_EXPORT), settings)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings.threads])
    texts = mixed_texts(pathlib.Path(inputs.text_path(settings)).read_text(errors="ignore"))
    texts = random.Random(1).sample(texts, min(settings.texts, len(texts)))
    calls = dict(ours(settings)) | (dict(others(settings)) if not settings.only_ours else {})
    content: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "machine": run.machine()}
    with load_of_others() as share:
        content |= measured(calls, texts, settings)
    content |= {"threads": settings.threads, "others": share[0], "versions": run.versions()}
    files.write_bytes(settings.output_file, f"{json.dumps(content, indent=1)}\n".encode())
    path = pathlib.Path(settings.output_file).with_suffix(".md")
    path.write_text("\n".join([*page(content), ""]))


def mixed_texts(corpus: str) -> list[str]:
    """In turn a paragraph and a sentence of the next one, without markup and fragments."""
    lines = [line.strip() for line in corpus.splitlines()]
    texts = [line for line in lines if len(line.split()) > 4 and not line.startswith("<")]
    rng = random.Random(1)
    texts[1::2] = [rng.choice(_SENTENCE_END.split(text)) for text in texts[1::2]]
    return texts


def measured(calls: Mapping[str, Call], texts: list[str], settings: ThroughputSettings) -> dict:
    """`texts`, their number in a round, and by name the `seconds` of each round."""
    slowest = 0.0
    for name, call in calls.items():
        _seconds(call, texts[:_WARM_UP])
        slowest = max(slowest, _seconds(call, texts[:_WARM_UP]) / _WARM_UP)
        print(f"warm-up, {name}; the slowest so far: {slowest:.2f} s per text", flush=True)
    number = min(
        len(texts) // settings.rounds, max(_WARM_UP, int(settings.slowest_seconds / slowest))
    )
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for start in range(0, settings.rounds * number, number):
        for name, call in calls.items():
            seconds[name].append(_seconds(call, texts[start : start + number]))
            print(f"{name}: {number} texts in {seconds[name][-1]:.1f} s", flush=True)
    return {"texts": number, "seconds": seconds}


def _seconds(call: Call, texts: list[str]) -> float:
    started = time.perf_counter()
    call(texts)
    return time.perf_counter() - started


def ours(settings: ThroughputSettings) -> Iterator[tuple[str, Call]]:
    """`load_predictor` with the model and its ONNX files, for each of --batches."""
    from albert_tf import load_predictor
    from albert_tf.tasks import predictor

    paths = {
        "": inputs.model_path(settings),
        ", ONNX": inputs.export_path(settings, inputs.ONNX_EXPORT),
        ", ONNX `int8`": inputs.export_path(settings, inputs.INT8_EXPORT),
    }
    for number, tokens in (map(int, batch.split("x")) for batch in settings.batches.split(",")):
        for title, path in paths.items():
            loaded = load_predictor(path, max_seq_length=_LENGTH, batch_size=number)

            def call(texts: list[str], loaded=loaded, tokens=tokens) -> Any:
                predictor._TOKENS_OF_BATCH = tokens
                return loaded.predict(texts)

            yield f"ours{title}, {number} texts or {tokens:,} tokens", call


def others(settings: ThroughputSettings) -> Iterator[tuple[str, Call]]:
    """The other libraries, in float32; 1 is the default of the pipeline, 32 that of sentence-transformers."""
    import sentence_transformers
    import torch
    import transformers

    torch.set_num_threads(settings.threads)
    path, cuts = inputs.model_path(settings), {"truncation": True, "max_length": _LENGTH}
    classify = transformers.pipeline("text-classification", model=path, device="cpu")
    for size in (1, 8, 32):
        call = lambda texts, size=size: classify(texts, batch_size=size, **cuts)  # noqa: E731
        yield f"transformers, pipeline, batches of {size}", call
    encoder = sentence_transformers.SentenceTransformer(path, device="cpu")
    encoder.max_seq_length = _LENGTH
    yield "sentence-transformers, encode", encoder.encode


def page(content: Mapping[str, Any]) -> list[str]:
    """A row for each way to answer texts; ratios are to the fastest other library in the same round."""
    number, seconds = content["texts"], content["seconds"]
    of_others = [row for name, row in seconds.items() if not name.startswith("ours")]
    fastest = list(map(min, zip(*of_others, strict=True)))
    cells = []
    for name, row in seconds.items():
        rates = sorted(number / spent for spent in row)
        cell = f"{statistics.median(rates):.1f} ({rates[0]:.1f} to {rates[-1]:.1f})"
        ratios = [other / own for own, other in zip(row, fastest, strict=False)]
        cells.append([name, cell, f"{statistics.median(ratios):.2f}" if ratios else ""])
    about = f"{content['machine']['processor']}, {content['date']}, threads: {content['threads']}"
    load = f"other programs used {content['others']:.0%} of the processors"
    lines = [f"{about}; {load}. {number:,} texts in a round, at most {_LENGTH} tokens.", ""]
    return lines + table("library | texts per second | times the fastest other library", cells)


if __name__ == "__main__":
    flags.run(main, ThroughputSettings, description=__doc__)
