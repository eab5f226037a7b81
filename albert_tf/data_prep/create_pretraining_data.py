r"""Turns text into TFRecords of masked sentence-order examples.

    albert-tf data create_pretraining_data --input_file=corpus/ --output_dir=records/ \
        --spm_model_file=30k-clean.model

Input: UTF-8 text, one sentence a line, a blank line between documents; the end of a file ends a document.
Output: shards of records and `metadata.json` with every setting and count. A record has several examples, or one with
all of the original's features (`albert_tf/data/record_formats/`).

An output file gets its final name only when it is complete. The same command resumes a run that was killed. Until the
run ends, its folder contains `.unfinished` with the tokenized text (at most half the size of the text).

The implementation is in `albert_tf/data_prep/pretraining/`: with `build.py`, processes of this machine make the
records. With `--runner`, Apache Beam makes the same files on this machine or on a cluster (`beam_pipeline.py`).

Source: create_pretraining_data.py of the original.
"""

import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Iterator

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.data_prep.pretraining import build
from albert_tf.data_prep.pretraining.settings import (
    PretrainingDataSettings,
    dynamic_defaults,
    with_pipeline_options,
)
from albert_tf.data_prep.pretraining.text_blocks import MOST_BLOCK_BYTES
from albert_tf.data_prep.text_files import print_note

# A count that the summary mentions if it is not 0 -> the note on it; {1} is the first invalid line.
_NOTES = {
    "single_sentence_documents": "{:,} documents are a single sentence (--single_segment)",
    "dropped_sentences": "{:,} times a sentence of a single word could not be split, and was dropped",
    "cut_documents": f"{{:,}} documents of more than {MOST_BLOCK_BYTES:,} bytes were cut in two",
    "invalid_utf8_lines": "{0:,} lines were not UTF-8, the first: {1}",
}


def main(settings: PretrainingDataSettings) -> None:
    """Makes the records and prints a summary."""
    start = time.monotonic()
    wanted = round(settings.masked_lm_prob * settings.max_seq_length)
    if settings.max_predictions_per_seq < wanted:
        share = settings.max_predictions_per_seq / settings.max_seq_length
        print_note(
            build.PROGRAM,
            f"warning: --max_predictions_per_seq={settings.max_predictions_per_seq} masks {share:.1%} of a full"
            f" example; --masked_lm_prob={settings.masked_lm_prob} asks for {wanted} tokens",
        )
    engine = build if settings.runner == "local" else _beam_pipeline()
    metadata, was_complete = engine.create_pretraining_data(settings)
    counts = metadata["counts"]
    for key, note in _NOTES.items():
        if counts[key]:
            print_note(build.PROGRAM, note.format(counts[key], counts["first_invalid_line"]))
    num_examples = counts["examples"]
    num_bytes = sum(shard["bytes"] for shard in metadata["shards"])
    where = f"{num_bytes:,} bytes in {len(metadata['shards'])} files in {settings.folder}"
    if was_complete:
        print(f"{num_examples:,} examples, {where}: all existed already")
        return
    seconds = time.monotonic() - start
    speed = f"{seconds:.1f} seconds, {num_examples / seconds:,.0f} examples/s"
    print(f"{num_examples:,} examples, {speed}, {where}")


def _beam_pipeline():
    """The function that makes records with Beam; Beam is imported only for the runners that need it."""
    try:
        with quiet_imports():
            from albert_tf.data_prep.pretraining import beam_pipeline
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("apache_beam"):
            raise
        raise UserError(
            "every --runner but local needs Apache Beam: pip install '.[beam]' in a checkout"
        ) from None
    return beam_pipeline


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Hides Beam's warnings about cloud clients that are not installed."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    # numba imports scipy's linear algebra, which takes a quarter of a second to load and is not used here.
    sys.modules.setdefault("scipy.linalg", None)
    sys.argv = with_pipeline_options(sys.argv)
    flags.run(main, PretrainingDataSettings, description=__doc__, defaults=dynamic_defaults)


if __name__ == "__main__":
    run()
