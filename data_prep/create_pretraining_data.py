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

import collections
import contextlib
import dataclasses
import functools
import itertools
import logging
import math
import os
import shlex
import shutil
import sys
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import albert_tf
from albert_tf.core import flags as cli
from albert_tf.core.errors import UserError
from albert_tf.core.workers import Workers, num_workers_setting
from albert_tf.model.config import Settings, setting
from albert_tf.text.tokenizer import WORD_START_RULES, Tokenizer
from data_prep.pretraining import record_writer, sentence_pairs
from data_prep.pretraining.line_tokenizer import LineTokenizer
from data_prep.pretraining.record_folder import METADATA_FILE, FileAccess, RecordFolder, WorkFolder
from data_prep.pretraining.record_formats import RECORD_MAKERS
from data_prep.pretraining.text_blocks import MOST_BLOCK_BYTES, TextBlock, decode_lines, read_blocks
from data_prep.text_files import (
    OutputFile,
    expand_paths,
    invalid_utf8_setting,
    print_note,
    show_progress,
    total_bytes,
)

LABEL = "create_pretraining_data"

PART_BYTES = 128 << 20
SMALL_PART_EXAMPLES = 2000  # parts of a small corpus are smaller, for all cores to have work
MOST_SMALL_PARTS = 64
UNITS_OF_PART = 64
BATCH_EXAMPLES = 256  # made and encoded together: about 1 MB of records

RUNNERS = ("local", "direct", "flink", "spark", "dataflow", "portable")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataSettings(Settings):
    """What records are made of what text (original create_pretraining_data.py:31-92).

    Raises:
      UserError: a value is impossible or contradicts another; names the flag.
    """

    input_file: str = setting(
        "",
        "Text, one sentence a line and a blank line between documents: files, globs or folders, separated by"
        " commas.",
        required=True,
        input_path=True,
    )
    output_dir: str = setting("", "Folder for the records.")
    output_file: str = setting(
        "", "Names of the records, separated by commas, in one folder; instead of --output_dir."
    )
    spm_model_file: str = setting("", "SentencePiece model.", required=True, input_path=True)
    do_lower_case: bool = setting(True, "Whether to lower-case the text; false for cased models.")
    do_whole_word_mask: bool = setting(True, "Whether whole words are masked, or single pieces.")
    do_permutation: bool = setting(
        False,
        "Whether as many pieces again change places and are predicted; doubles the prediction slots.",
    )
    favor_shorter_ngram: bool = setting(
        True, "Whether spans of n words have chances of 1/n, or these in reverse."
    )
    random_next_sentence: bool = setting(False, "The original's name of --sentence_task=nsp.")
    sentence_task: str = setting(
        "",
        "sop (also if not given): half of the pairs are swapped; nsp: half of the B are from another document;"
        " none: all in order.",
        choices=("", *sentence_pairs.SENTENCE_TASKS),
    )
    single_segment: str = setting(
        "faithful",
        "Pair of a lone sentence: faithful takes B from another document, label 1, even with sop, as the"
        " original; clean splits the sentence.",
        choices=("faithful", "clean"),
    )
    word_start_rule: str = setting(
        "original",
        "Which pieces start a word: original is made for English, marker is for other languages.",
        choices=WORD_START_RULES,
    )
    max_seq_length: int = setting(512, "Pieces in an example.", minimum=5)
    ngram: int = setting(3, "Most words in a masked span.", minimum=1)
    max_predictions_per_seq: int = setting(20, "Most masked pieces in an example.", minimum=1)
    random_seed: int = setting(12345, "Seed of pairs, masks and order.", minimum=0)
    dupe_factor: int = setting(
        40,
        "Passes through the text, each with other pairs and masks; 1 if it is not given with --masking=dynamic.",
        minimum=1,
    )
    record_format: str = setting(
        "full",
        "full: the original's features, padded; compact: a fifth to a third of the bytes, for training with this"
        " project alone. compact if it is not given with --masking=dynamic.",
        choices=("full", "compact"),
    )
    sentence_pairs: str = setting(
        "static",
        "static: pieces are masked here; dynamic: training masks them, anew each epoch, by the settings given here.",
        choices=("static", "dynamic"),
    )
    masked_lm_prob: float = setting(
        0.15, "Share of the pieces that are masked.", minimum=0, maximum=1
    )
    short_seq_prob: float = setting(
        0.1, "Chance that a document is cut into shorter examples.", minimum=0, maximum=1
    )
    num_shards: int = setting(
        0,
        "Files in --output_dir; 0 makes as many as get about 128 MiB of full records each.",
        minimum=0,
    )
    compression: str = setting("none", "Compression of the records.", choices=("none", "gzip"))
    invalid_utf8: str = invalid_utf8_setting()
    num_workers: int = num_workers_setting()
    runner: str = setting(
        "local",
        "local: processes of this machine; the others are Apache Beam's, direct on this machine, portable at any"
        " --job_endpoint. Changes no result.",
        choices=RUNNERS,
    )
    pipeline_options: str = setting(
        "",
        "Options of Beam and of the runner, as they stand on a command line; or give them after --.",
    )

    def __post_init__(self):
        super().__post_init__()
        self._check_runner()
        if self.random_next_sentence and self.sentence_task not in ("", "nsp"):
            self.refuse("random_next_sentence", f"contradicts --sentence_task={self.sentence_task}")
        if not self.sentence_task:
            task = "nsp" if self.random_next_sentence else "sop"
            object.__setattr__(self, "sentence_task", task)
        if bool(self.output_dir) == bool(self.output_file):
            self.refuse("output_dir", "or --output_file must be given, and not both")
        if self.masking == "dynamic" and self.record_format != "compact":
            self.refuse("masking", "=dynamic needs --record_format=compact")
        if self.output_file and self.num_shards:
            self.refuse("num_shards", "contradicts --output_file, which names every file")
        if len({os.path.dirname(path) for path in self.output_files}) > 1:
            self.refuse(
                "output_file", f"must name files in one folder, that of their {METADATA_FILE}"
            )
        if len(set(self.output_files)) < len(self.output_files):
            self.refuse("output_file", "names a file twice")

    def _check_runner(self) -> None:
        remote = [
            name
            for name in ("input_file", "output_dir", "output_file")
            if "://" in getattr(self, name)
        ]
        if self.runner == "local" and remote:
            self.refuse(remote[0], "is on a remote file system, which --runner=direct can use")
        if self.runner == "local" and self.pipeline_options:
            self.refuse("pipeline_options", "contradicts --runner=local, which is not Beam")
        if self.runner != "local" and set("*?[") & set(self.output_dir + self.output_file):
            name = "output_dir" if self.output_dir else "output_file"
            self.refuse(name, "must hold none of *?[, which are patterns on Beam's file systems")
        if self.runner == "dataflow" and "://" not in self.folder:
            self.refuse("output_dir", f"must be remote with --runner=dataflow; got {self.folder}")
        if self.runner not in ("local", "direct") and self.num_workers:
            self.refuse(
                "num_workers",
                f"contradicts --runner={self.runner}, whose workers are set by its own options, after --",
            )
        try:
            options = shlex.split(self.pipeline_options)
        except ValueError as error:
            self.refuse("pipeline_options", f"cannot be split into options ({error})")
        if any(option.split("=")[0] == "--runner" for option in options):
            self.refuse("runner", "must stand before --")

    @property
    def folder(self) -> str:
        """The folder of the records."""
        return self.output_dir or os.path.dirname(self.output_file) or "."

    @property
    def output_files(self) -> list[str]:
        """The paths of the records, if they are given."""
        return [path for path in self.output_file.split(",") if path]

    def shard_path(self, index: int, num_shards: int) -> str:
        """Where a shard goes."""
        if self.output_files:
            return self.output_files[index]
        suffix = ".gz" if self.compression == "gzip" else ""
        name = f"pretraining-{index:05d}-of-{num_shards:05d}.tfrecord{suffix}"
        return os.path.join(self.output_dir, name)


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


class InputError(UserError):
    """The text is wrong, so that nothing made of it is worth going on with."""


class Job(NamedTuple):
    """What every task of a run needs, in whichever process."""

    settings: PretrainingDataSettings
    tokenizer: LineTokenizer
    work: WorkFolder
    pair_rule: sentence_pairs.PairRule
    masking_rule: sentence_pairs.MaskingRule


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


# Change no result, or stand in the metadata under another name.
_NOT_IN_METADATA = frozenset(
    {
        *("num_workers", "num_shards", "output_dir", "output_file", "input_file"),
        *("spm_model_file", "random_next_sentence", "runner", "pipeline_options"),
    }
)


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
    is_dynamic = settings.masking == "dynamic"
    return {
        **{key: described[key] for key in described if key not in _NOT_IN_METADATA},
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


# --- Step 1: blocks are tokenized.


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


# --- Between the steps: which examples go where.


class Plan(NamedTuple):
    """How the passes through all blocks are dealt to parts, and parts to shards.

    Of a large corpus, every pass through a block is a unit, or a few units (slices). Of a small one, every
    pass is dealt to all parts, example by example.
    """

    num_blocks: int
    num_passes: int
    num_slices: int
    num_parts: int
    num_shards: int
    seed: int

    @property
    def is_small(self) -> bool:
        """Whether every part takes something of every pass."""
        return self.num_slices == self.num_parts

    def units_of(self, part: int) -> list[tuple[int, int, int]]:
        """The (block, pass, slice) of a part, sorted; of a small corpus, slice is always 0."""
        if self.is_small:
            return list(itertools.product(range(self.num_blocks), range(self.num_passes), [0]))
        units = np.sort(_shuffled_units(self)[part :: self.num_parts])
        sizes = (self.num_blocks, self.num_passes, self.num_slices)
        return list(zip(*(axis.tolist() for axis in np.unravel_index(units, sizes)), strict=True))

    def parts_of(self, shard: int) -> range:
        """The parts of a shard."""
        parts_per_shard = self.num_parts // self.num_shards
        return range(shard * parts_per_shard, (shard + 1) * parts_per_shard)


@functools.lru_cache(maxsize=1)
def _shuffled_units(plan: Plan) -> np.ndarray:
    num_units = plan.num_blocks * plan.num_passes * plan.num_slices
    return sentence_pairs.shuffled(num_units, sentence_pairs.combine_seeds(plan.seed, num_units))


def plan_parts(settings: PretrainingDataSettings, text_counts: dict[str, Any]) -> Plan:
    """Decides on the number of parts and shards.

    Args:
      settings: the settings.
      text_counts: what step 1 counted: `sentences`, `blocks`, and `examples` of all passes.

    Raises:
      UserError: there are no examples, or fewer than files.
    """
    num_examples = text_counts["examples"]
    if not text_counts["sentences"]:
        raise InputError(f"--input_file={settings.input_file}: holds no text")
    if not num_examples:
        raise InputError(
            f"--input_file={settings.input_file}: no document has two sentences, or one of two words"
        )
    num_slots = settings.max_predictions_per_seq * (1 + settings.do_permutation)
    # Of full records: compact ones get smaller files of as many examples, because these take the memory.
    example_bytes = 300 + 5 * settings.max_seq_length + 9 * num_slots  # of varints and names, about
    small_parts = min(MOST_SMALL_PARTS, math.ceil(num_examples / SMALL_PART_EXAMPLES))
    wanted = max(small_parts, math.ceil(num_examples * example_bytes / PART_BYTES))
    num_shards = len(settings.output_files) or settings.num_shards or wanted
    if num_shards > num_examples:
        raise InputError(f"the text gives {num_examples} examples, too few for {num_shards} files")
    num_parts = math.ceil(wanted / num_shards) * num_shards
    num_passes = text_counts["blocks"] * settings.dupe_factor
    num_slices = math.ceil(UNITS_OF_PART * num_parts / num_passes)
    return Plan(
        num_blocks=text_counts["blocks"],
        num_passes=settings.dupe_factor,
        num_slices=min(num_parts, num_slices),
        num_parts=num_parts,
        num_shards=num_shards,
        seed=settings.random_seed,
    )


# --- Step 2: parts are made of blocks, and shards of parts.


EXAMPLE_COUNTS = ("examples", "pieces", "masked_pieces", "label_0", "label_1")


class Part(NamedTuple):
    """One of the parts of a plan, and where it goes."""

    plan: Plan
    index: int
    path: str


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


def _parts_of(job: Job, plan: Plan, shard: int, shard_path: str) -> list[Part]:
    """The parts of a shard; a single one is the shard."""
    indices = plan.parts_of(shard)
    if len(indices) == 1:
        return [Part(plan, indices[0], shard_path)]
    return [Part(plan, index, job.work.file(f"part-{index:06d}")) for index in indices]


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


def dynamic_defaults(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """What flags that are not given are with --masking=dynamic: masks need no passes of their own."""
    is_dynamic = flags["masking"] == "dynamic"
    return {"record_format": "compact", "dupe_factor": 1} if is_dynamic else {}


def with_pipeline_options(arguments: Sequence[str]) -> list[str]:
    """A command line on which what stands after -- is the value of --pipeline_options.

    Example:
      ["x.py", "--runner=flink", "--", "--parallelism=8"]
      -> ["x.py", "--runner=flink", "--pipeline_options=--parallelism=8"]
    """
    if "--" not in arguments:
        return list(arguments)
    place = list(arguments).index("--")
    name = "--pipeline_options="
    before = [argument for argument in arguments[:place] if not argument.startswith(name)]
    given = [
        argument.removeprefix(name) for argument in arguments[:place] if argument not in before
    ]
    return [*before, name + " ".join([*given, shlex.join(arguments[place + 1 :])])]


if __name__ == "__main__":
    # numba asks for scipy's linear algebra, which takes a quarter of a second to load and is used by nothing here.
    sys.modules.setdefault("scipy.linalg", None)
    sys.argv = with_pipeline_options(sys.argv)
    cli.run(main, PretrainingDataSettings, defaults=dynamic_defaults)
