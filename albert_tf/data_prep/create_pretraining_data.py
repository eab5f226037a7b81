r"""Turns text into TFRecords of masked sentence-order examples.

    albert-tf data create_pretraining_data --input_file=corpus/ --output_dir=records/ \
        --spm_model_file=30k-clean.model

Input: UTF-8 text, one sentence per line, a blank line between documents; the end of a file ends a document.
Output: shards of records and `metadata.json` with every setting and count. A record has several examples, or one with
all of the original's features (`albert_tf/data/record_formats/`).

An output file is complete or absent; the same command continues a run that was killed. Until the run ends, its folder
contains `.unfinished`, with 2 bytes for each token of the text (half of its size) and 20 bytes for each example.

The implementation is in `albert_tf/data_prep/pretraining/`. With `--runner`, a cluster of Dask or Apache Beam makes the
same files (`albert_tf/data_prep/engines/`).

Source: create_pretraining_data.py of the original.
"""

import sys
import time
from collections.abc import Mapping

from albert_tf.core import flags
from albert_tf.core.program import Program
from albert_tf.data_prep.corpus import print_note
from albert_tf.data_prep.pretraining.make_records import PROGRAM, create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings, dynamic_defaults

# A count that the summary mentions if it is not 0 -> the note on it.
_NOTES = {
    "single_sentence_documents": "{:,} documents are a single sentence (--single_segment)",
    "divided_sentences": (
        "{:,} lines are longer than an example and were divided (split_sentences writes one sentence per line)"
    ),
    "invalid_utf8_lines": "{:,} lines were not UTF-8",
}


def main(settings: PretrainingDataSettings) -> str:
    """Makes the records, prints a summary, and returns the folder of the records."""
    start = time.monotonic()
    wanted = round(settings.masked_lm_prob * settings.max_seq_length)
    if settings.max_predictions_per_seq < wanted:
        share = settings.max_predictions_per_seq / settings.max_seq_length
        print_note(
            PROGRAM,
            f"warning: --max_predictions_per_seq={settings.max_predictions_per_seq} masks {share:.1%} of a full"
            f" example; --masked_lm_prob={settings.masked_lm_prob} asks for {wanted} tokens",
        )
    metadata, was_complete = create_pretraining_data(settings)
    counts = metadata["counts"]
    for key, note in _NOTES.items():
        if counts.get(key):  # folders of earlier versions lack some
            print_note(PROGRAM, note.format(counts[key]))
    if "text_tokens_in_records" in counts:
        print_note(PROGRAM, kept_line(counts, settings))
    if (unknown := counts["unknown_tokens"] / max(1, counts["tokens"])) > 0.01:
        print_note(
            PROGRAM,
            f"warning: the vocabulary does not know {unknown:.1%} of the tokens: was it made for this language, with"
            " the same --do_lower_case and --keep_accents?",
        )
    num_examples = counts["examples"]
    num_bytes = sum(shard["bytes"] for shard in metadata["shards"])
    where = f"{num_bytes:,} bytes in {len(metadata['shards'])} files in {settings.output_dir}"
    if was_complete:
        print(f"{num_examples:,} examples, {where}: all existed already")
        return settings.output_dir
    seconds = time.monotonic() - start
    speed = f"{seconds:.1f} seconds, {num_examples / seconds:,.0f} examples/s"
    print(f"{num_examples:,} examples, {speed}, {where}")
    return settings.output_dir


def kept_line(counts: Mapping[str, int], settings: PretrainingDataSettings) -> str:
    """Which share of the text a pass through it puts into records; a warning below nine tenths."""
    num_tokens = counts["tokens"] * settings.dupe_factor
    # A random B that happens to follow its A counts twice.
    kept = min(1.0, counts["text_tokens_in_records"] / num_tokens)
    if kept >= 0.9:
        return f"{kept:.1%} of the tokens are in the records of a pass"
    advice = [
        f"raise --max_seq_length={settings.max_seq_length}",
        "let split_sentences divide lines into sentences",
    ]
    is_mostly_single = 2 * counts["single_sentence_documents"] > counts["documents"]
    if (
        is_mostly_single
        and settings.single_segment == "faithful"
        and settings.sentence_task != "none"
    ):
        advice.append("keep documents of one sentence whole with --single_segment=clean")
    return (
        f"warning: only {kept:.1%} of the tokens are in the records of a pass, because pairs of sentences are cut to"
        f" the length of an example; {', or '.join(advice)}"
    )


program = Program(
    main=main,
    settings_classes=(PretrainingDataSettings,),
    description=__doc__,
    defaults=dynamic_defaults,
)


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    # numba imports scipy's linear algebra, which takes a quarter of a second to load and is not used here.
    sys.modules.setdefault("scipy.linalg", None)  # type: ignore[arg-type]
    flags.in_shell(program)()


if __name__ == "__main__":
    run()
