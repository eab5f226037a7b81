"""Text -> tokenized blocks -> parts -> shards."""

import collections
import itertools
import os
import shutil
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import albert_tf
from albert_tf.core.workers import Workers
from albert_tf.text.tokenizer import Tokenizer
from data_prep.pretraining import record_writer, sentence_pairs
from data_prep.pretraining.line_tokenizer import LineTokenizer
from data_prep.pretraining.plan import InputError, Job, Part, Plan, _parts_of, plan_parts
from data_prep.pretraining.record_folder import FileAccess, RecordFolder, WorkFolder
from data_prep.pretraining.record_formats import RECORD_MAKERS
from data_prep.pretraining.settings import PretrainingDataSettings
from data_prep.pretraining.text_blocks import TextBlock, decode_lines, read_blocks
from data_prep.text_files import (
    OutputFile,
    expand_paths,
    print_note,
    show_progress,
    total_bytes,
)

LABEL = "create_pretraining_data"
BATCH_EXAMPLES = 256  # made and encoded together: about 1 MB of records


def create_pretraining_data(settings: PretrainingDataSettings) -> tuple[dict[str, Any], bool]:
    """Makes the records that the settings describe, or what is missing of them.

    Returns:
      What `metadata.json` holds, and whether everything had been there already.

    Raises:
      UserError: the input is missing, empty or not UTF-8, the folder holds other records, or the disk is full.
    """
    files = expand_paths(settings.input_file)
    tokenizer = Tokenizer.from_file(settings.spm_model_file, do_lower_case=settings.do_lower_case)
    described_files = [{"file": path, "bytes": os.path.getsize(path)} for path in files]
    identity = run_identity(settings, tokenizer, described_files)
    modified = [os.stat(path).st_mtime_ns for path in files]
    folder = RecordFolder(settings.folder, identity, modified, FileAccess())
    if metadata := folder.finished_metadata():
        return metadata, True
    if folder.open():
        print_note(LABEL, f"going on with the run in {folder.path}")
    job = make_job(settings, tokenizer, folder.work)
    job.tokenizer.encode([])  # makes its tables, for copies of this process to have them
    try:
        with Workers(settings.num_workers, job) as workers:
            text_counts = tokenize_text(job, workers, files)
            plan = plan_parts(settings, text_counts)
            shards = build_shards(job, workers, plan, text_counts["examples"])
    except InputError:
        folder.remove_work()
        raise
    return finish(folder, text_counts, shards), False


def finish(
    folder: RecordFolder, text_counts: Mapping[str, Any], shards: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Writes the metadata of a folder whose shards are complete; returns it.

    Args:
      folder: the folder.
      text_counts: what step 1 counted.
      shards: the counts and file name of each.
    """
    counts = collections.Counter(text_counts)
    for shard in shards:
        counts.update({f"{key}_in_records": shard[key] for key in ("pieces", "masked_pieces")})
        counts.update({key: shard[key] for key in ("label_0", "label_1")})
    return folder.finish(counts, shards)


def run_identity(
    settings: PretrainingDataSettings,
    tokenizer: Tokenizer,
    input_files: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What must be equal for a run to go on; the beginning of the metadata.

    Args:
      settings: the settings.
      tokenizer: the vocabulary.
      input_files: `file`, the path, and `bytes` of each.
    """
    described = settings.to_dict()
    # These are in the metadata under other names, as requested_shards, file_names and sentence_task.
    renamed = ("num_shards", "output_file", "random_next_sentence")
    is_dynamic = settings.masking == "dynamic"
    return {
        **{
            name: described[name]
            for name in settings.names(changes_results=True)
            if name not in renamed
        },
        "requested_shards": settings.num_shards,
        "file_names": [os.path.basename(path) for path in settings.output_files],
        "vocab_size": tokenizer.vocab_size,
        "spm_sha256": tokenizer.sha256,
        "input_files": list(input_files),
        **({"vocabulary": _vocabulary(settings, tokenizer).to_json()} if is_dynamic else {}),
        "version": albert_tf.__version__,
    }


def _vocabulary(
    settings: PretrainingDataSettings, tokenizer: Tokenizer
) -> sentence_pairs.Vocabulary:
    """What masking must know of the pieces; a reader that masks finds it in the metadata."""
    return sentence_pairs.Vocabulary(
        tokenizer.word_starts(settings.word_start_rule),
        *(tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id),
    )


def make_job(settings: PretrainingDataSettings, tokenizer: Tokenizer, work: WorkFolder) -> Job:
    """What the tasks of a run need.

    Args:
      settings: the settings.
      tokenizer: the vocabulary.
      work: where the run keeps its files.
    """
    vocabulary = _vocabulary(settings, tokenizer)
    pair_rule = sentence_pairs.pair_rule(
        vocabulary.is_word_start,
        max_seq_length=settings.max_seq_length,
        short_seq_prob=settings.short_seq_prob,
        sentence_task=settings.sentence_task,
        single_segment=settings.single_segment,
    )
    masking_rule = sentence_pairs.masking_rule(
        vocabulary, **{name: getattr(settings, name) for name in sentence_pairs.RULE_SETTINGS}
    )
    return Job(settings, LineTokenizer(tokenizer), work, pair_rule, masking_rule)


def tokenize_text(job: Job, workers: Workers, files: Sequence[str]) -> dict[str, Any]:
    """Tokenizes and stores all blocks; returns the sums of their counts."""
    summary_file = job.work.file("text.json")
    if (summary := job.work.files.read_json(summary_file)) is not None:
        return summary
    total: dict[str, Any] = collections.Counter()
    first_invalid_line = ""
    with show_progress("tokenizing", total_bytes(files), "bytes") as progress:
        for counts in workers.map(tokenize_block, read_blocks(files)):
            first_invalid_line = first_invalid_line or counts.pop("first_invalid_line")
            total.update(counts)
            shown = {key: f"{total[key]:,}" for key in ("documents", "tokens")}
            progress.update(total["text_bytes"], shown)
    del total["bytes"]  # of the stored blocks
    summary = {**total, "first_invalid_line": first_invalid_line}
    job.work.files.write_json(summary_file, summary)
    return summary


def tokenize_block(job: Job, block: TextBlock) -> dict[str, Any]:
    """Tokenizes and stores a block, unless that was done before; returns its counts.

    Raises:
      UserError: a line is not UTF-8 and `--invalid_utf8=error`, or the disk is full.
    """
    path = _block_path(job, block.index)
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
    plans = [
        _plan_pass(job, documents, block.index, number)
        for number in range(job.settings.dupe_factor)
    ]
    counts = {
        "blocks": 1,
        "text_bytes": sum(map(len, block.lines)) + len(block.lines),
        "documents": len(sentences_of_documents),
        "single_sentence_documents": int((sentences_of_documents == 1).sum()),
        "cut_documents": int(block.was_cut),
        "sentences": len(documents.sentence_offsets) - 1,
        "tokens": len(documents.ids),
        "examples": sum(len(pairs) for pairs, _, _ in plans),
        "dropped_sentences": sum(num_dropped for _, _, num_dropped in plans),
        "invalid_utf8_lines": len(invalid_lines),
        "first_invalid_line": block.place_of(invalid_lines[0]) if invalid_lines else "",
    }
    with job.work.writing(path, counts) as file:
        for array in documents:
            np.save(file, array)
    return counts


def _as_documents(
    tokenizer: LineTokenizer, texts: list[str], document_numbers: list[int]
) -> sentence_pairs.Documents:
    """Joins sentences; those without any piece go."""
    ids, lengths = tokenizer.encode(texts)
    numbers = np.array(document_numbers, np.int64)[lengths > 0]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    ids_type = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.int32
    return sentence_pairs.Documents(
        ids=ids.astype(ids_type),
        sentence_offsets=np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64),
        document_offsets=np.append(starts, len(numbers)).astype(np.int64),
    )


def _plan_pass(
    job: Job, documents: sentence_pairs.Documents, block: int, number: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """The pairs of one pass through a block (`masking.plan_pairs`)."""
    seed = sentence_pairs.combine_seeds(job.settings.random_seed, number, block)
    return sentence_pairs.plan_pairs(documents, job.pair_rule, seed)


def _block_path(job: Job, block: int) -> str:
    return job.work.file(f"block-{block:06d}")


EXAMPLE_COUNTS = ("examples", "pieces", "masked_pieces", "label_0", "label_1")


def build_shards(job: Job, workers: Workers, plan: Plan, num_examples: int) -> list[dict[str, Any]]:
    """Makes the shards that are missing; returns the counts and file name of each."""
    paths = [job.settings.shard_path(shard, plan.num_shards) for shard in range(plan.num_shards)]
    results = [job.work.counts_of(path) for path in paths]
    missing = [shard for shard, counts in enumerate(results) if not counts]
    num_made = sum(counts["examples"] for counts in results if counts)
    parts = {shard: _parts_of(job, plan, shard, paths[shard]) for shard in missing}
    with show_progress("making", num_examples, "examples", first=num_made) as progress:
        made = workers.map(build_part, itertools.chain.from_iterable(parts.values()))
        for shard in missing:
            counts = collections.Counter()
            for _ in parts[shard]:
                counts.update(next(made))
                progress.update(num_made + counts["examples"])
            num_made += counts["examples"]
            if len(parts[shard]) > 1:
                _join_parts(job, parts[shard], paths[shard], counts)
            results[shard] = counts
    return [
        {**counts, "file": os.path.basename(path)}
        for counts, path in zip(results, paths, strict=True)
    ]


def _join_parts(job: Job, parts: list[Part], path: str, counts: dict[str, Any]) -> None:
    """Makes a shard of its parts, which both TFRecord and gzip files allow to be put in a row."""
    with job.work.writing(path, counts) as file:
        for part in parts:
            with open(part.path, "rb") as part_file:
                shutil.copyfileobj(part_file, file, 1 << 20)
    for part in parts:
        os.remove(part.path)


def build_part(job: Job, part: Part) -> dict[str, Any]:
    """Makes, shuffles and writes the examples of a part, unless that was done before; returns its counts.

    Raises:
      UserError: the disk is full.
    """
    if counts := job.work.counts_of(part.path):
        return counts
    counts = dict.fromkeys(EXAMPLE_COUNTS, 0)
    with job.work.writing(part.path, counts) as file:
        write_part(job, part.plan, part.index, file, counts)
    return counts


def write_part(job: Job, plan: Plan, index: int, file: OutputFile, counts: dict[str, Any]) -> None:
    """Makes and shuffles the examples of a part, and appends them to a file.

    Args:
      job: the job.
      plan: the plan.
      index: of the part.
      file: an open file.
      counts: the `EXAMPLE_COUNTS`, to add to.

    Raises:
      UserError: the disk is full.
    """
    settings = job.settings
    ids, pairs, seeds = _plan_examples(job, plan, index)
    order = sentence_pairs.shuffled(
        len(pairs), sentence_pairs.combine_seeds(settings.random_seed, index, 1)
    )
    compressor = zlib.compressobj(wbits=31) if settings.compression == "gzip" else None
    make_records = RECORD_MAKERS[settings.record_format, settings.masking]
    for start in range(0, len(order), BATCH_EXAMPLES):
        rows = order[start : start + BATCH_EXAMPLES]
        sequences = sentence_pairs.join_pairs(
            ids,
            pairs[rows],
            seeds[rows],
            job.masking_rule,
            max_seq_length=settings.max_seq_length,
        )
        batch = make_records(sequences, job.masking_rule)
        records = record_writer.encode_examples(batch.features, batch.lengths).data
        file.write(compressor.compress(records) if compressor else records)
        _count(sequences, batch.num_masked, counts)
    if compressor:
        file.write(compressor.flush())


def _plan_examples(job: Job, plan: Plan, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids that a part needs, and its pairs and seeds (`masking.plan_pairs`)."""
    ids_of_blocks, all_pairs, all_seeds = [], [], []
    first_id, num_dealt = 0, 0
    for block, units in itertools.groupby(plan.units_of(index), key=lambda unit: unit[0]):
        documents = _load_block(job, block)
        for _, number, slice_index in units:
            pairs, seeds, _ = _plan_pass(job, documents, block, number)
            # Shuffled, or the same documents of each pass could end up in the same part.
            order = sentence_pairs.shuffled(
                len(pairs), sentence_pairs.combine_seeds(plan.seed, number, block, 1)
            )
            first = (index - num_dealt) % plan.num_parts if plan.is_small else slice_index
            rows = order[first :: plan.num_slices]
            num_dealt += len(pairs)
            pairs = pairs[rows]
            pairs[:, : sentence_pairs.LABEL] += first_id
            all_pairs.append(pairs)
            all_seeds.append(seeds[rows])
        ids_of_blocks.append(documents.ids)
        first_id += len(documents.ids)
    return np.concatenate(ids_of_blocks), np.concatenate(all_pairs), np.concatenate(all_seeds)


def _load_block(job: Job, block: int) -> sentence_pairs.Documents:
    with job.work.files.open(_block_path(job, block)) as file:
        return sentence_pairs.Documents(*(np.load(file) for _ in sentence_pairs.Documents._fields))


def _count(sequences: sentence_pairs.Sequences, num_masked: int, counts: dict[str, Any]) -> None:
    num_examples = len(sequences.input_ids)
    num_changed = int(sequences.labels.sum())
    counts["examples"] += num_examples
    counts["pieces"] += int(sequences.num_pieces.sum())
    counts["masked_pieces"] += num_masked
    counts["label_0"] += num_examples - num_changed
    counts["label_1"] += num_changed
