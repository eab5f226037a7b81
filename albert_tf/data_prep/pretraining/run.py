"""A run of create_pretraining_data: its beginning, the engine on this machine, and its end.

The original keeps the whole corpus in memory as Python strings, which takes 25 times the size of the corpus. Here
memory does not depend on the corpus: about 200 MB for each process. There are three steps:

1. `blocks.store_block` tokenizes each block of the text, plans its pairs, and stores and counts both.
2. The counts determine the parts and shards (`plan.py`). `shards.make_shard` takes the examples of a shard from the
   stored blocks, shuffles them and writes their records.
3. `RecordFolder.finish` writes the metadata.

An engine calls the functions of the first two steps: the one below with processes of this machine, `beam.py` with
Apache Beam. The result is the same, because every block, shard and random number depends only on the text, the settings
and the seed.
"""

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import albert_tf
from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locked
from albert_tf.core.workers import Workers
from albert_tf.data.pretraining_examples import (
    Vocabulary,
    masking_rule,
    pair_rule,
)
from albert_tf.data.record_formats.base import add_counts
from albert_tf.data_prep import corpus
from albert_tf.data_prep.pretraining import blocks, shards
from albert_tf.data_prep.pretraining.blocks import Counts, Inputs, Job
from albert_tf.data_prep.pretraining.line_tokenizer import LineTokenizer
from albert_tf.data_prep.pretraining.plan import InputError, Plan, plan_parts
from albert_tf.data_prep.pretraining.record_folder import RecordFolder, WorkFolder
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.text.tokenizer import Tokenizer

PROGRAM = "create_pretraining_data"
_OF_FILE = ("file", "examples", "bytes")  # counts of a shard that are not among those of the run


def create_pretraining_data(settings: PretrainingDataSettings) -> tuple[dict[str, Any], bool]:
    """Makes the records that the settings describe, or resumes an interrupted run.

    Returns:
      The content of `metadata.json`, and whether all records existed before.

    Raises:
      UserError: the input is missing, empty or not UTF-8, the folder contains other records, or the disk is full.
    """
    make_shards = make_here if settings.runner == "local" else _beam_engine()
    folder = RecordFolder(settings.folder)
    tokenizer = Tokenizer.from_file(settings.vocabulary_file, **settings.cleaning)
    vocabulary = Vocabulary(
        is_word_start=tokenizer.word_starts(settings.word_start_rule),
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        mask_id=tokenizer.mask_id,
    )
    job = _make_job(settings, tokenizer, vocabulary, folder.work)
    identity = _identity(settings, tokenizer, vocabulary)
    inputs, modified = corpus.inputs_of(settings.input_file)
    identity["input_files"] = inputs
    unchanged = {"modified_nanoseconds": modified}
    with locked(settings.folder, "output_dir" if settings.output_dir else "output_file"):
        if metadata := folder.open(identity, unchanged):
            return metadata, True
        if folder.is_resumed:
            corpus.print_note(PROGRAM, f"resuming the run in {folder.path}")
        try:
            text_counts, counts_of_shards = make_shards(job, inputs)
        except InputError:
            files.remove(folder.work.path)
            raise
        counts = _total(text_counts, counts_of_shards)
        return folder.finish(counts, counts_of_shards), False


# --- The engines.


def make_here(job: Job, inputs: Inputs) -> tuple[Counts, list[Counts]]:
    """Makes the shards with processes of this machine.

    Returns:
      The sum of the counts of all blocks, and the counts of each shard.
    """
    shards.compile_functions(job)
    with Workers(job.settings.num_workers, job) as workers:
        text_counts = _store_blocks(workers, inputs)
        plan = plan_parts(job.settings, text_counts)
        with corpus.show_progress("making", text_counts["examples"], "examples") as progress:
            made, num_examples = [], 0
            for counts in _shards(job, workers, plan):
                made.append(counts)
                num_examples += counts["examples"]
                progress.update(num_examples)
        return text_counts, made


def _store_blocks(workers: Workers, inputs: Inputs) -> Counts:
    total = blocks.sum_counts([])
    num_bytes = sum(file["bytes"] for file in inputs)
    with corpus.show_progress("tokenizing", num_bytes, "bytes") as progress:
        for counts in workers.map(blocks.store_block, blocks.blocks_of(inputs)):
            total = blocks.sum_counts([total, counts])
            shown = {key: f"{total[key]:,}" for key in ("documents", "tokens")}
            progress.update(total["text_bytes"], shown)
    return total


def _shards(job: Job, workers: Workers, plan: Plan) -> Iterator[Counts]:
    """The counts of the shards. If a shard has several parts, workers make these separately; then they are joined."""
    all_shards = range(plan.num_shards)
    if plan.num_parts == plan.num_shards:
        yield from workers.map(shards.make_shard, [(plan, shard) for shard in all_shards])
        return
    is_missing = [
        not job.work.counts_of(job.settings.shard_path(shard, plan.num_shards))
        for shard in all_shards
    ]
    missing = [part for shard in all_shards if is_missing[shard] for part in plan.parts_of(shard)]
    parts = workers.map(shards.make_part, [(plan, part) for part in missing])
    for shard in all_shards:
        for _ in plan.parts_of(shard) if is_missing[shard] else ():
            next(parts)
        yield shards.make_shard(job, (plan, shard))


def _beam_engine():
    """`make_here` with Beam, which is imported only for the runners that need it."""
    try:
        with quiet_imports():
            from albert_tf.data_prep.pretraining import beam
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("apache_beam"):
            raise
        raise UserError(
            "every --runner but local needs Apache Beam: pip install '.[beam]' in a checkout"
        ) from None
    return beam.make_with_beam


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


# --- The beginning and the end of a run.


def _identity(
    settings: PretrainingDataSettings, tokenizer: Tokenizer, vocabulary: Vocabulary
) -> dict[str, Any]:
    """The values that must be equal for a run to be resumed; they are the first entries of the metadata.

    The files of the input are added to them.
    """
    # The metadata has these under other names: requested_shards, file_names and sentence_task.
    renamed = ("num_shards", "output_file", "random_next_sentence")
    names = [name for name in settings.names(changes_results=True) if name not in renamed]
    return {
        **{name: getattr(settings, name) for name in names},
        "requested_shards": settings.num_shards,
        "file_names": [os.path.basename(path) for path in settings.output_files],
        "vocab_size": tokenizer.vocab_size,
        "spm_sha256": tokenizer.sha256,
        # The reader needs it to mask tokens.
        **({"vocabulary": vocabulary.to_json()} if settings.masking == "dynamic" else {}),
        "version": albert_tf.__version__,
    }


def _make_job(
    settings: PretrainingDataSettings,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    work: WorkFolder,
) -> Job:
    """What every process needs; `work` is opened before the processes start."""
    values = settings.to_dict()
    pairs = pair_rule(vocabulary.is_word_start, values)
    return Job(settings, LineTokenizer(tokenizer), work, pairs, masking_rule(vocabulary, values))


def _total(text_counts: Counts, counts_of_shards: Sequence[Counts]) -> dict[str, Any]:
    """The counts for the metadata."""
    invalid_lines = text_counts["first_invalid_line"]
    place = corpus.place_of(*invalid_lines[0][1:]) if invalid_lines else ""
    total = {**text_counts, "first_invalid_line": place}
    for counts in counts_of_shards:
        add_counts(total, {name: counts[name] for name in counts if name not in _OF_FILE})
    return total
