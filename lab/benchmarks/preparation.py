"""Data preparation as a complete program: time and rates by corpus and number of workers."""

import functools
import os
import shutil

from albert_tf.core import files
from lab.benchmarks import measure
from lab.benchmarks.inputs import corpus, cut_text, record_flags, run_module, vocabulary
from lab.benchmarks.measure import BenchSettings, Measurement, Values


def prepare(
    settings: BenchSettings, *, megabytes: float, quick_megabytes: float = 1, **work: int
) -> Values:
    """Runs create_pretraining_data with the flags in `work`.

    Returns:
      The values of `repeated`; `examples_a_second`, `text_bytes_a_second`.
    """
    text = cut_text(settings, quick_megabytes if settings.quick else megabytes)
    folder = settings.work / "prepared"
    flags = {**record_flags(settings, text, 512), **work}

    def run(**changes) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        run_module(
            "data_prep.create_pretraining_data", **{**flags, "output_dir": folder, **changes}
        )

    # Fills numba's cache of compiled functions.
    run(input_file=cut_text(settings, 0.05))
    timing = measure.repeated(run, settings.seconds, warm_up=0, least=2, most=5)
    metadata = files.read_json(str(folder / "metadata.json"))
    shutil.rmtree(folder)
    return {
        **timing,
        "examples_a_second": metadata["counts"]["examples"] / timing["median"],
        "text_bytes_a_second": os.path.getsize(text) / timing["median"],
    }


def _measurement(name: str, in_quick: bool = False, **work) -> Measurement:
    function = functools.partial(prepare, **work)
    return Measurement(f"preparation.{name}", function, vocabulary, in_quick)


def sentencepiece(settings: BenchSettings) -> Values:
    """Rate at which SentencePiece alone tokenizes clean sentences, on one core.

    Returns:
      The values of `repeated` for a pass through the text, and `bytes_a_second`.
    """
    import sentencepiece as library

    with open(corpus(settings), "rb") as file:
        lines = file.read(8 << 20).decode("utf-8", "ignore").lower().splitlines()
    lines = [line for line in lines if line]
    processor = library.SentencePieceProcessor(model_file=vocabulary(settings))
    call = functools.partial(processor.encode, lines, num_threads=1)
    timing = measure.repeated(call, settings.seconds / 3)
    num_bytes = sum(len(line.encode()) + 1 for line in lines)
    return {**timing, "bytes_a_second": num_bytes / timing["median"]}


MEASUREMENTS = (
    Measurement("sentencepiece", sentencepiece, vocabulary, in_quick=True),
    _measurement("dupe_10", True, megabytes=5, dupe_factor=10),
    _measurement("dupe_1", True, megabytes=25, dupe_factor=1, quick_megabytes=5),
    _measurement("workers.1", megabytes=25, dupe_factor=1, num_workers=1),
)
