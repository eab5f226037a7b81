"""Text -> TFRecords of masked sentence-order examples.

    python -m data_prep.create_pretraining_data --input_file=corpus/ --output_dir=records/ \
        --spm_model_file=30k-clean.model

Input: UTF-8 text, one sentence a line, a blank line between documents; the end of a file ends a document.
Output: shards of records, with the original's features or smaller (`record_formats.py`), and `metadata.json` with every
setting and count.

The original keeps the whole corpus as Python strings, and so needs 25 times its size in memory. Here memory
is the same for any corpus, about 200 MB for each process, in two steps that both run on all cores:

1. The text is read in *blocks* of about 1 MiB of whole documents. Each block is tokenized, once, and stored.
2. A *unit* is one pass through a block (there are `dupe_factor` of them), or a fraction of a pass if the
   corpus is small. All units are shuffled and dealt to *parts*, about 128 MiB of records each. A worker plans
   the examples of a part, shuffles them, makes and writes them. A shard is one part, or several in a row.

So the passes through a document end up in different parts, and a part mixes about 70 units from all over the
corpus. What a block, unit and part hold, and every random number, depends on the text, the settings and the
seed alone, never on the number of workers or on which of them is faster. A random B (`masking.plan_pairs`)
comes from the same block.

Whatever is written gets its final name only when it is complete, so that a run that was killed can be
started again and goes on; until then its folder holds `.unfinished` with the tokenized text (half the size
of the text, or less).

With `--runner` both steps run on Apache Beam, on this machine or on a cluster, and give the same files
(`beam_pipeline.py`).

Source: create_pretraining_data.py of the original.
"""

import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

from albert_tf.core import flags as cli
from albert_tf.core.errors import UserError
from data_prep.pretraining.build import LABEL, create_pretraining_data
from data_prep.pretraining.settings import (
    PretrainingDataSettings,
    dynamic_defaults,
    with_pipeline_options,
)
from data_prep.pretraining.text_blocks import MOST_BLOCK_BYTES
from data_prep.text_files import (
    print_note,
)


def main(settings: PretrainingDataSettings) -> None:
    """Makes the records and prints a summary."""
    start = time.monotonic()
    if warning := _too_few_predictions(settings):
        print_note(LABEL, f"warning: {warning}")
    if settings.runner == "local":
        metadata, was_complete = create_pretraining_data(settings)
    else:
        metadata, was_complete = _beam_pipeline().create_pretraining_data(settings)
    for note in _notes(metadata["counts"]):
        print_note(LABEL, note)
    num_examples = metadata["counts"]["examples"]
    num_bytes = sum(shard["bytes"] for shard in metadata["shards"])
    where = f"{num_bytes:,} bytes in {len(metadata['shards'])} files in {settings.folder}"
    if was_complete:
        print(f"{num_examples:,} examples, {where}: all were there already")
        return
    seconds = time.monotonic() - start
    speed = f"{seconds:.1f} seconds, {num_examples / seconds:,.0f} examples/s"
    print(f"{num_examples:,} examples, {speed}, {where}")


def _beam_pipeline():
    """The module of the other runners; Beam is imported for these only."""
    try:
        with quiet_imports():
            from data_prep.pretraining import beam_pipeline
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("apache_beam"):
            raise
        raise UserError(
            "every --runner but local needs Apache Beam: pip install albert-tf[beam]"
        ) from None
    return beam_pipeline


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Hides what Beam says of clouds whose clients are not installed."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _too_few_predictions(settings: PretrainingDataSettings) -> str:
    wanted = round(settings.masked_lm_prob * settings.max_seq_length)
    if settings.max_predictions_per_seq >= wanted:
        return ""
    share = settings.max_predictions_per_seq / settings.max_seq_length
    return (
        f"--max_predictions_per_seq={settings.max_predictions_per_seq} masks {share:.1%} of a full example;"
        f" --masked_lm_prob={settings.masked_lm_prob} asks for {wanted} pieces"
    )


def _notes(counts: dict[str, Any]) -> list[str]:
    """What a user should know about the text, a line each."""
    notes = []
    if number := counts["single_sentence_documents"]:
        notes.append(f"{number:,} documents are a single sentence (--single_segment)")
    if number := counts["dropped_sentences"]:
        notes.append(
            f"{number:,} times a sentence of a single word could not be split, and was dropped"
        )
    if number := counts["cut_documents"]:
        notes.append(
            f"{number:,} documents of more than {MOST_BLOCK_BYTES:,} bytes were cut in two"
        )
    if number := counts["invalid_utf8_lines"]:
        notes.append(f"{number:,} lines were not UTF-8, the first: {counts['first_invalid_line']}")
    return notes


if __name__ == "__main__":
    # numba asks for scipy's linear algebra, which takes a quarter of a second to load and is used by nothing here.
    sys.modules.setdefault("scipy.linalg", None)
    sys.argv = with_pipeline_options(sys.argv)
    cli.run(main, PretrainingDataSettings, defaults=dynamic_defaults)
