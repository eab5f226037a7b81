"""Text -> tokenized blocks -> records, by processes of this machine.

The original keeps the whole corpus in memory as Python strings, which takes 25 times the size of the corpus. Here
memory does not depend on the corpus: about 200 MB for each process. There are two steps, which both run on all cores:

1. The text is read in *blocks* of about 1 MiB of whole documents. Each block is tokenized once and stored.
2. A worker takes the examples of a *part* (`plan.py`) from the stored blocks, shuffles them and writes their records.

The content of a block and of a part, and every random number, depends only on the text, the settings and the seed,
never on the number of workers or their speed. A random B (`pretraining_examples.plan_pairs`) comes from the same block.

`beam_pipeline.py` calls the same functions for the same blocks and shards on Apache Beam's workers.
"""

import collections
import itertools
import os
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import albert_tf
from albert_tf.core import compilation
from albert_tf.core.locks import locked
from albert_tf.core.workers import Workers
from albert_tf.data.pretraining_examples import (
    A_END,
    A_START,
    B_END,
    B_START,
    LABEL,
    MASKING_SETTINGS,
    PAIR_SETTINGS,
    Documents,
    MaskingRule,
    PairRule,
    Vocabulary,
    combine_seeds,
    join_pairs,
    masking_rule,
    pair_rule,
    plan_pairs,
    sequence_lengths,
    shuffled,
)
from albert_tf.data.record_formats import FORMATS
from albert_tf.data.record_formats.base import add_counts
from albert_tf.data_prep.pretraining.line_tokenizer import LineTokenizer
from albert_tf.data_prep.pretraining.plan import InputError, Plan, plan_parts
from albert_tf.data_prep.pretraining.record_folder import (
    FileAccess,
    InputFile,
    RecordFolder,
    WorkFolder,
    local_inputs,
)
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.data_prep.pretraining.text_blocks import TextBlock, decode_lines, read_blocks
from albert_tf.data_prep.text_files import OutputFile, print_note, show_progress, total_bytes
from albert_tf.text.tokenizer import Tokenizer

PROGRAM = "create_pretraining_data"
BATCH_RECORDS = 256  # made and encoded together: about 1 MB
# Counts of shards that are not sums or maxima of all records.
_OF_FILE = ("examples", "bytes", "file")


class Job(NamedTuple):
    """What every process of a run needs."""

    settings: PretrainingDataSettings
    tokenizer: LineTokenizer
    work: WorkFolder
    pair_rule: PairRule
    masking_rule: MaskingRule


def create_pretraining_data(settings: PretrainingDataSettings) -> tuple[dict[str, Any], bool]:
    """Makes the records that the settings describe, or resumes an interrupted run.

    Returns:
      The content of `metadata.json`, and whether all records existed before.

    Raises:
      UserError: the input is missing, empty or not UTF-8, the folder holds other records, or the disk is full.
    """
    inputs = local_inputs(settings.input_file)
    tokenizer = Tokenizer.from_file(settings.vocabulary_file, **settings.cleaning)

    def build(job: Job) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        compile_functions(job)
        with Workers(settings.num_workers, job) as workers:
            text_counts = tokenize_text(job, workers, [file.path for file in inputs])
            plan = plan_parts(settings, text_counts)
            return text_counts, build_shards(job, workers, plan, text_counts["examples"])

    return complete_run(settings, tokenizer, inputs, FileAccess(), build)


# --- The beginning and the end of a run.


def complete_run(
    settings: PretrainingDataSettings,
    tokenizer: Tokenizer,
    inputs: Sequence[InputFile],
    files: FileAccess,
    build: Callable[[Job], tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]],
) -> tuple[dict[str, Any], bool]:
    """Starts or resumes the run of a folder, and completes it.

    Args:
      settings: the settings.
      tokenizer: the vocabulary.
      inputs: the files of the corpus.
      files: reads and writes the files of the run.
      build: makes the shards; returns the counts of all blocks (`tokenize_text`), then the counts and file of each
        shard.

    Returns:
      The content of `metadata.json`, and whether all records existed before.

    Raises:
      UserError: the folder holds other records, or cannot be written to.
    """
    with locked(settings.folder, "output_dir" if settings.output_dir else "output_file"):
        return _complete_run(settings, tokenizer, inputs, files, build)


def _complete_run(settings, tokenizer, inputs, files, build) -> tuple[dict[str, Any], bool]:
    identity = run_identity(settings, tokenizer, inputs)
    modified = [file.modified_nanoseconds for file in inputs]
    folder = RecordFolder(settings.folder, identity, modified, files)
    if metadata := folder.finished_metadata():
        return metadata, True
    if folder.open():
        print_note(PROGRAM, f"resuming the run in {folder.path}")
    try:
        text_counts, shards = build(make_job(settings, tokenizer, folder.work))
    except InputError:
        folder.remove_work()
        raise
    counts = dict(text_counts)
    for shard in shards:
        add_counts(counts, {name: shard[name] for name in shard if name not in _OF_FILE})
    return folder.finish(counts, shards), False


def run_identity(
    settings: PretrainingDataSettings, tokenizer: Tokenizer, inputs: Sequence[InputFile]
) -> dict[str, Any]:
    """The values that must be equal for a run to be resumed; they are the first entries of the metadata."""
    # The metadata has these under other names: requested_shards, file_names and sentence_task.
    renamed = ("num_shards", "output_file", "random_next_sentence")
    names = [name for name in settings.names(changes_results=True) if name not in renamed]
    is_dynamic = settings.masking == "dynamic"
    return {
        **{name: getattr(settings, name) for name in names},
        "requested_shards": settings.num_shards,
        "file_names": [os.path.basename(path) for path in settings.output_files],
        "vocab_size": tokenizer.vocab_size,
        "spm_sha256": tokenizer.sha256,
        "input_files": [{"file": file.path, "bytes": file.num_bytes} for file in inputs],
        # The reader needs it to mask tokens.
        **({"vocabulary": _vocabulary(settings, tokenizer).to_json()} if is_dynamic else {}),
        "version": albert_tf.__version__,
    }


def _vocabulary(settings: PretrainingDataSettings, tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary(
        is_word_start=tokenizer.word_starts(settings.word_start_rule),
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        mask_id=tokenizer.mask_id,
    )


def make_job(settings: PretrainingDataSettings, tokenizer: Tokenizer, work: WorkFolder) -> Job:
    """The job of a run whose files are in `work`."""
    vocabulary = _vocabulary(settings, tokenizer)
    values = settings.to_dict()
    pairs = pair_rule(vocabulary.is_word_start, **{name: values[name] for name in PAIR_SETTINGS})
    masks = masking_rule(vocabulary, **{name: values[name] for name in MASKING_SETTINGS})
    return Job(settings, LineTokenizer(tokenizer), work, pairs, masks)


def compile_functions(job: Job) -> None:
    """Makes the vocabulary's tables and compiles all functions, so that worker processes need not do it again."""
    with compilation.announced(PROGRAM, "the functions that make records", 20):
        documents = _as_documents(job.tokenizer, [], [])
        pairs, seeds, _ = _plan_pass(job, documents, 0, 0)
        order = shuffled(len(pairs), combine_seeds(0, 0))
        _encode(job, documents.ids, pairs, seeds[order], np.ones(len(pairs), np.int64))
        lengths = np.full(1, job.settings.max_seq_length)
        FORMATS[job.settings.record_format].rows(lengths, lengths[0], combine_seeds(0))


# --- Step 1: text -> tokenized blocks.


def tokenize_text(job: Job, workers: Workers, files: Sequence[str]) -> dict[str, Any]:
    """Tokenizes and stores all blocks; returns the sums of their counts."""
    summary_file = job.work.file("text.json")
    summary = job.work.read_json(summary_file)
    blocks = range(summary["blocks"]) if summary else ()
    if summary and all(job.work.counts_of(_block_file(job, index)) for index in blocks):
        return summary
    total: dict[str, Any] = collections.Counter()
    first_invalid_line = ""
    with show_progress("tokenizing", total_bytes(files), "bytes") as progress:
        for counts in workers.map(tokenize_block, read_blocks(files)):
            line = counts.pop("first_invalid_line")
            first_invalid_line = first_invalid_line or line
            total.update(counts)
            shown = {key: f"{total[key]:,}" for key in ("documents", "tokens")}
            progress.update(total["text_bytes"], shown)
    del total["bytes"]  # the size of the stored blocks
    summary = {**total, "first_invalid_line": first_invalid_line}
    job.work.write_json(summary_file, summary)
    return summary


def _block_file(job: Job, index: int) -> str:
    return job.work.file(f"block-{index:06d}")


def tokenize_block(job: Job, block: TextBlock) -> dict[str, Any]:
    """Tokenizes and stores a block, unless it is stored already; returns its counts.

    Raises:
      UserError: a line is not UTF-8 and `--invalid_utf8=error`, or the disk is full.
    """
    path = _block_file(job, block.index)
    if counts := job.work.counts_of(path):
        return counts
    invalid_utf8 = job.settings.invalid_utf8
    texts, document_numbers, invalid_lines = decode_lines(block.lines, invalid_utf8)
    if invalid_lines and invalid_utf8 == "error":
        raise InputError(
            f"{block.place_of(invalid_lines[0])}: not UTF-8 ({len(invalid_lines)} such lines near there);"
            " --invalid_utf8=replace reads on"
        )
    documents = _as_documents(job.tokenizer, texts, document_numbers)
    sentences_of_documents = np.diff(documents.document_offsets)
    numbers = range(job.settings.dupe_factor)
    passes = [_plan_pass(job, documents, block.index, number) for number in numbers]
    counts = {
        "blocks": 1,
        "text_bytes": sum(map(len, block.lines)) + len(block.lines),
        "documents": len(sentences_of_documents),
        "single_sentence_documents": int((sentences_of_documents == 1).sum()),
        "cut_documents": int(block.was_cut),
        "sentences": len(documents.sentence_offsets) - 1,
        "tokens": len(documents.ids),
        "examples": sum(len(pairs) for pairs, _, _ in passes),
        "dropped_sentences": sum(num_dropped for _, _, num_dropped in passes),
        "invalid_utf8_lines": len(invalid_lines),
        "first_invalid_line": block.place_of(invalid_lines[0]) if invalid_lines else "",
    }
    with job.work.writing(path, counts) as file:
        for array in documents:
            np.save(file, array)
    return counts


def _as_documents(
    tokenizer: LineTokenizer, texts: list[str], document_numbers: list[int]
) -> Documents:
    """Tokenizes and joins sentences; sentences without any token are left out."""
    ids, lengths = tokenizer.encode(texts)
    numbers = np.array(document_numbers, np.int64)[lengths > 0]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    ids_type = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.int32
    return Documents(
        ids=ids.astype(ids_type),
        sentence_offsets=np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64),
        document_offsets=np.append(starts, len(numbers)).astype(np.int64),
    )


def _plan_pass(
    job: Job, documents: Documents, block: int, number: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """The pairs of one pass through a block (`plan_pairs`)."""
    seed = combine_seeds(job.settings.random_seed, number, block)
    return plan_pairs(documents, job.pair_rule, seed)


# --- Step 2: tokenized blocks -> shards.


class RecordFile(NamedTuple):
    """A file of records: one or several parts of a plan."""

    path: str
    plan: Plan
    parts: Sequence[int]


def build_shards(job: Job, workers: Workers, plan: Plan, num_examples: int) -> list[dict[str, Any]]:
    """Makes the shards that are missing; returns the counts and file name of each.

    Workers make the parts of a shard separately; then the parts are joined.
    """
    paths = [job.settings.shard_path(shard, plan.num_shards) for shard in range(plan.num_shards)]
    results = [job.work.counts_of(path) for path in paths]
    num_made = sum(counts["examples"] for counts in results if counts)
    missing = [shard for shard, counts in enumerate(results) if not counts]
    missing = {shard: _files_of_shard(job, plan, shard, paths[shard]) for shard in missing}
    with show_progress("making", num_examples, "examples", first=num_made) as progress:
        made = workers.map(build_file, itertools.chain.from_iterable(missing.values()))
        for shard, files in missing.items():
            counts: dict[str, Any] = {"examples": 0}
            for _ in files:
                add_counts(counts, next(made))
                progress.update(num_made + counts["examples"])
            num_made += counts["examples"]
            if len(files) > 1:
                _join_files(job, files, paths[shard], counts)
            results[shard] = counts
    numbered = zip(results, paths, strict=True)
    return [{**counts, "file": os.path.basename(path)} for counts, path in numbered]


def _files_of_shard(job: Job, plan: Plan, shard: int, path: str) -> list[RecordFile]:
    """A file for each part of a shard; if there is only one part, its file is the shard."""
    parts = plan.parts_of(shard)
    if len(parts) == 1:
        return [RecordFile(path, plan, parts)]
    return [RecordFile(job.work.file(f"part-{part:06d}"), plan, [part]) for part in parts]


def _join_files(job: Job, files: list[RecordFile], path: str, counts: dict[str, Any]) -> None:
    """Joins the files of parts to a shard; both TFRecord and gzip files may be concatenated."""
    with job.work.writing(path, counts) as shard:
        for file in files:
            with open(file.path, "rb") as part:
                shutil.copyfileobj(part, shard, 1 << 20)
    for file in files:
        os.remove(file.path)


def build_file(job: Job, file: RecordFile) -> dict[str, Any]:
    """Makes, shuffles and writes the examples of a file, unless it is complete already; returns its counts.

    Raises:
      UserError: it cannot be written.
    """
    if counts := job.work.counts_of(file.path):
        return counts
    counts: dict[str, Any] = {}
    with job.work.writing(file.path, counts) as output:
        for part in file.parts:
            _write_part(job, file.plan, part, output, counts)
    return counts


def _write_part(
    job: Job, plan: Plan, part: int, output: OutputFile, counts: dict[str, Any]
) -> None:
    """Appends the examples of a part, shuffled, to a file, and adds them to the counts."""
    settings, record_format = job.settings, FORMATS[job.settings.record_format]
    ids, pairs, seeds = _pairs_of_part(job, plan, part)
    order = shuffled(len(pairs), combine_seeds(settings.random_seed, part, 1))
    lengths = sequence_lengths(pairs[order], settings.max_seq_length)
    row_seed = combine_seeds(settings.random_seed, part, 2)
    by_row, per_row = record_format.rows(lengths, settings.max_seq_length, row_seed)
    order, ends = order[by_row], np.cumsum(per_row)
    compressor = zlib.compressobj(wbits=31) if settings.compression == "gzip" else None
    for first_row in range(0, len(per_row), BATCH_RECORDS):
        rows = slice(first_row, first_row + BATCH_RECORDS)
        chosen = order[ends[first_row] - per_row[first_row] : ends[rows][-1]]
        records, made = _encode(job, ids, pairs[chosen], seeds[chosen], per_row[rows])
        output.write(compressor.compress(records) if compressor else records)
        add_counts(counts, made)
    if compressor:
        output.write(compressor.flush())


def _encode(
    job: Job, ids: np.ndarray, pairs: np.ndarray, seeds: np.ndarray, per_row: np.ndarray
) -> tuple[memoryview, dict[str, int]]:
    """The records of pairs (`plan_pairs`), and their counts; `per_row` is the number of examples in each record."""
    settings, rule = job.settings, job.masking_rule
    sequences = join_pairs(ids, pairs, seeds, rule, max_seq_length=settings.max_seq_length)
    record_format = FORMATS[settings.record_format]
    return record_format.encode(sequences, per_row, rule, settings.masking)


def _pairs_of_part(job: Job, plan: Plan, part: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids of the blocks of a part, and its pairs and their seeds (`plan_pairs`)."""
    ids_of_blocks, all_pairs, all_seeds = [], [], []
    first_id, num_dealt = 0, 0
    for block, units in itertools.groupby(plan.units_of(part), key=lambda unit: unit[0]):
        with job.work.files.open(_block_file(job, block)) as file:
            documents = Documents(*(np.load(file) for _ in Documents._fields))
        pairs_of_block = []
        for _, number, slice_index in units:
            pairs, seeds, _ = _plan_pass(job, documents, block, number)
            # Shuffled, because the same documents of each pass could otherwise end up in the same part.
            order = shuffled(len(pairs), combine_seeds(plan.seed, number, block, 1))
            first = (part - num_dealt) % plan.num_parts if plan.is_small else slice_index
            rows = order[first :: plan.num_slices]
            num_dealt += len(pairs)
            pairs_of_block.append(pairs[rows])
            all_seeds.append(seeds[rows])
        ids, pairs = _without_unused_ids(documents.ids, np.concatenate(pairs_of_block))
        pairs[:, :LABEL] += first_id
        all_pairs.append(pairs)
        ids_of_blocks.append(ids)
        first_id += len(ids)
    return np.concatenate(ids_of_blocks), np.concatenate(all_pairs), np.concatenate(all_seeds)


def _without_unused_ids(ids: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ids that pairs refer to, and the pairs with the new positions.

    A part of a small corpus takes a few pairs from every block; with all ids it would hold the whole corpus.
    """
    changes = np.zeros(len(ids) + 1, np.int32)  # changes of the number of segments that an id is in
    np.add.at(changes, pairs[:, [A_START, B_START]], 1)
    np.add.at(changes, pairs[:, [A_END, B_END]], -1)
    is_used = np.cumsum(changes[:-1]) > 0
    new_places = np.concatenate([[0], np.cumsum(is_used)])
    new_pairs = pairs.copy()
    new_pairs[:, :LABEL] = new_places[pairs[:, :LABEL]]
    return ids[is_used], new_pairs
