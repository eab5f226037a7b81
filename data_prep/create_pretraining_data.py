"""Text -> TFRecords of masked sentence-order examples.

    python -m data_prep.create_pretraining_data --input_file=corpus/ --output_dir=records/ \
        --spm_model_file=30k-clean.model

Input: UTF-8 text, one sentence a line, a blank line between documents; the end of a file ends a document.
Output: shards of records with the original's features, and `metadata.json` with every setting and count.

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

Source: create_pretraining_data.py of the original.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import glob
import itertools
import json
import math
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from tqdm import tqdm

import albert_tf
from albert_tf import cli
from albert_tf.config import Settings, setting
from albert_tf.errors import UserError
from albert_tf.tokenization import WORD_START_RULES, Tokenizer
from data_prep import masking, record_writer
from data_prep.text_files import expand_paths, print_note, total_bytes

METADATA_FILE = "metadata.json"
WORK_FOLDER = ".unfinished"

# A block ends with a document once it has this much text. It must have several documents, for a random B
# to have others to come from; long ones make a block larger, up to the limit, where they are cut in two.
BLOCK_BYTES = 1 << 20
BLOCK_DOCUMENTS = 16
LARGE_BLOCK_BYTES = 3 << 20
MOST_BLOCK_BYTES = 8 << 20
MOST_LINE_BYTES = 4 << 20

PART_BYTES = 128 << 20
SMALL_PART_EXAMPLES = 2000  # parts of a small corpus are smaller, for all cores to have work
MOST_SMALL_PARTS = 64
UNITS_OF_PART = 64
BATCH_EXAMPLES = 256  # made and encoded together: about 1 MB of records


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
        choices=("", *masking.SENTENCE_TASKS),
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
        40, "Passes through the text, each with other pairs and masks.", minimum=1
    )
    masked_lm_prob: float = setting(
        0.15, "Share of the pieces that are masked.", minimum=0, maximum=1
    )
    short_seq_prob: float = setting(
        0.1, "Chance that a document is cut into shorter examples.", minimum=0, maximum=1
    )
    num_shards: int = setting(
        0, "Files in --output_dir; 0 makes as many as get about 128 MiB each.", minimum=0
    )
    compression: str = setting("none", "Compression of the records.", choices=("none", "gzip"))
    invalid_utf8: str = setting(
        "error",
        "Whether a line that is not UTF-8 ends the program, or its bad bytes become U+FFFD.",
        choices=("error", "replace"),
    )
    num_workers: int = setting(
        0, "Processes; 0 is one for each core. Changes no result.", minimum=0
    )

    def __post_init__(self):
        super().__post_init__()
        if self.random_next_sentence and self.sentence_task not in ("", "nsp"):
            self.refuse("random_next_sentence", f"contradicts --sentence_task={self.sentence_task}")
        if not self.sentence_task:
            task = "nsp" if self.random_next_sentence else "sop"
            object.__setattr__(self, "sentence_task", task)
        if bool(self.output_dir) == bool(self.output_file):
            self.refuse("output_dir", "or --output_file must be given, and not both")
        if self.output_file and self.num_shards:
            self.refuse("num_shards", "contradicts --output_file, which names every file")
        if len({os.path.dirname(path) for path in self.output_file.split(",")}) > 1:
            self.refuse(
                "output_file", f"must name files in one folder, that of their {METADATA_FILE}"
            )
        if len(set(self.output_file.split(","))) < len(self.output_file.split(",")):
            self.refuse("output_file", "names a file twice")

    @property
    def folder(self) -> str:
        """The folder of the records."""
        return self.output_dir or os.path.dirname(self.output_file) or "."

    @property
    def num_workers_used(self) -> int:
        """The number of processes, resolved."""
        if self.num_workers:
            return self.num_workers
        # A container or a scheduler may give this process fewer cores than there are; macOS cannot tell.
        can_tell = hasattr(os, "sched_getaffinity")
        return len(os.sched_getaffinity(0)) if can_tell else os.cpu_count()


# Change no result, or stand in the metadata under another name.
_NOT_IN_METADATA = (
    *("num_workers", "num_shards", "output_dir", "output_file", "input_file"),
    *("spm_model_file", "random_next_sentence"),
)


def main(settings: PretrainingDataSettings) -> None:
    """Makes the records and prints a summary."""
    start = time.monotonic()
    if warning := _too_few_predictions(settings):
        _note(f"warning: {warning}")
    metadata, was_complete = create_pretraining_data(settings)
    for note in _notes(metadata["counts"]):
        _note(note)
    num_examples = metadata["counts"]["examples"]
    num_bytes = sum(shard["bytes"] for shard in metadata["shards"])
    where = f"{num_bytes:,} bytes in {len(metadata['shards'])} files in {settings.folder}"
    if was_complete:
        print(f"{num_examples:,} examples, {where}: all were there already")
        return
    seconds = time.monotonic() - start
    speed = f"{seconds:.1f} seconds, {num_examples / seconds:,.0f} examples/s"
    print(f"{num_examples:,} examples, {speed}, {where}")


def create_pretraining_data(settings: PretrainingDataSettings) -> tuple[dict[str, Any], bool]:
    """Makes the records that the settings describe, or what is missing of them.

    Returns:
      What `metadata.json` holds, and whether everything had been there already.

    Raises:
      UserError: the input is missing, empty or not UTF-8, the folder holds other records, or the disk is full.
    """
    files = expand_paths(settings.input_file)
    tokenizer = Tokenizer.from_file(settings.spm_model_file, do_lower_case=settings.do_lower_case)
    job = Job(settings, files, tokenizer)
    if metadata := job.finished_metadata():
        return metadata, True
    job.open_work_folder()
    try:
        with Workers(settings, job.work_folder) as workers:
            text_counts = _tokenize(job, workers)
            plan = plan_parts(settings, text_counts)
            shards = _build_shards(job, workers, plan, text_counts["examples"])
    except InputError:
        shutil.rmtree(job.work_folder)
        raise
    return job.finish(text_counts, shards), False


class InputError(UserError):
    """The text is wrong, so that nothing made of it is worth going on with."""


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


# --- The folder: what is there, what is finished, what may be written.


class Job:
    """A run's folder, and what must be equal for a run to go on there."""

    def __init__(self, settings: PretrainingDataSettings, files: list[str], tokenizer: Tokenizer):
        self.settings = settings
        self.files = files
        self.work_folder = os.path.join(settings.folder, WORK_FOLDER)
        names = (os.path.basename(path) for path in settings.output_file.split(",") if path)
        described = settings.to_dict()
        self.identity = {
            **{key: described[key] for key in described if key not in _NOT_IN_METADATA},
            "requested_shards": settings.num_shards,
            "file_names": list(names),
            "vocab_size": tokenizer.vocab_size,
            "spm_sha256": tokenizer.sha256,
            "input_files": [{"file": path, "bytes": os.path.getsize(path)} for path in files],
            "record_format": "original",
            "version": albert_tf.__version__,
        }

    def finished_metadata(self) -> dict[str, Any] | None:
        """The metadata of a run that is complete, if it is this one.

        Raises:
          UserError: the folder holds other records, or a file of this run is missing.
        """
        folder = self.settings.folder
        metadata = _read_json(os.path.join(folder, METADATA_FILE))
        if metadata is None:
            return None
        self._check_same(metadata)
        for shard in metadata["shards"]:
            path = os.path.join(folder, shard["file"])
            if not os.path.exists(path) or os.path.getsize(path) != shard["bytes"]:
                raise UserError(
                    f"{path}: is missing or was changed; empty the folder to make all again"
                )
        shutil.rmtree(self.work_folder, ignore_errors=True)  # if a run was killed at the very end
        return metadata

    def open_work_folder(self) -> None:
        """Goes on with a run of the same settings, or starts one.

        Raises:
          UserError: the folder holds other records, or cannot be written to.
        """
        state_file = os.path.join(self.work_folder, "settings.json")
        modified = [os.stat(path).st_mtime_ns for path in self.files]
        state = {**self.identity, "modified_nanoseconds": modified}
        if (old_state := _read_json(state_file)) is not None:
            self._check_same(old_state)
            if old_state["modified_nanoseconds"] != modified:
                self._refuse("--input_file has changed")
            for path in glob.glob(os.path.join(self.work_folder, "*.tmp")):
                os.remove(path)
            _note(f"going on with the run in {self.settings.folder}")
            return
        found = [name for name in self._folder_files() if self._is_record(name)]
        if found:
            raise UserError(
                f"{self.settings.folder}: holds other records ({found[0]}); give another folder, or empty it"
            )
        with _writing(self.settings.folder):
            os.makedirs(self.work_folder, exist_ok=True)
            _write_json(state_file, state)

    def finish(self, text_counts: dict[str, Any], shards: list[dict[str, Any]]) -> dict[str, Any]:
        """Writes the metadata and removes what was unfinished; returns the metadata."""
        counts = collections.Counter(text_counts)
        for shard in shards:
            counts.update({f"{key}_in_records": shard[key] for key in ("pieces", "masked_pieces")})
            counts.update({key: shard[key] for key in ("label_0", "label_1")})
        files = [{key: shard[key] for key in ("file", "examples", "bytes")} for shard in shards]
        metadata = {
            **self.identity,
            "num_shards": len(shards),
            "counts": dict(counts),
            "shards": files,
        }
        with _writing(self.settings.folder):
            _write_json(os.path.join(self.settings.folder, METADATA_FILE), metadata)
        shutil.rmtree(self.work_folder)
        return metadata

    def shard_path(self, index: int, num_shards: int) -> str:
        """Where a shard goes."""
        if self.settings.output_file:
            return self.settings.output_file.split(",")[index]
        suffix = ".gz" if self.settings.compression == "gzip" else ""
        name = f"pretraining-{index:05d}-of-{num_shards:05d}.tfrecord{suffix}"
        return os.path.join(self.settings.output_dir, name)

    def _check_same(self, old: dict[str, Any]) -> None:
        for key, value in self.identity.items():
            if key == "input_files" and old.get(key) != value:
                self._refuse("--input_file named other files, or they have changed")
            if old.get(key) != value:
                self._refuse(f"{key} was {old.get(key)}, is {value}")

    def _refuse(self, difference: str) -> None:
        folder = self.settings.folder
        raise UserError(
            f"{folder}: holds records of another run: {difference}; give another folder"
        )

    def _folder_files(self) -> list[str]:
        return (
            sorted(os.listdir(self.settings.folder)) if os.path.isdir(self.settings.folder) else []
        )

    def _is_record(self, name: str) -> bool:
        return name.endswith((".tfrecord", ".tfrecord.gz")) or name in self.identity["file_names"]


def _read_json(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise UserError(f"{path}: not a JSON file; delete it to make all again") from None


def _write_json(path: str, values: dict[str, Any]) -> None:
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(values, file, indent=2)
        file.write("\n")
    os.replace(path + ".tmp", path)


@contextlib.contextmanager
def _writing(folder: str) -> Iterator[None]:
    """Turns errors of the disk into an error that names the folder."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder}: cannot write ({error.strerror or error})") from error


def finished(path: str, work_folder: str) -> dict[str, Any] | None:
    """The counts of a file, if it is complete."""
    counts = _read_json(_counts_file(path, work_folder))
    if counts and os.path.exists(path) and os.path.getsize(path) == counts["bytes"]:
        return counts
    return None


@contextlib.contextmanager
def written_whole(path: str, work_folder: str, counts: dict[str, Any]) -> Iterator[BinaryIO]:
    """A file to write to that gets its name only when everything, `counts` too, is on the disk.

    Args:
      path: the final name; on the disk of `work_folder`, where the file is until then.
      work_folder: where the counts go, for `finished`; `bytes` is added to them.
      counts: may be filled until the end of the `with` block.

    Raises:
      UserError: the disk is full, for example; nothing is left under any name.
    """
    unfinished = os.path.join(work_folder, f"{os.path.basename(path)}.{os.getpid()}.tmp")
    with _writing(os.path.dirname(path) or "."):
        try:
            with open(unfinished, "wb") as file:
                yield file
            counts["bytes"] = os.path.getsize(unfinished)
            _write_json(_counts_file(path, work_folder), counts)
            os.replace(unfinished, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(unfinished)


def _counts_file(path: str, work_folder: str) -> str:
    return os.path.join(work_folder, os.path.basename(path) + ".json")


def _block_path(work_folder: str, block: int) -> str:
    return os.path.join(work_folder, f"block-{block:06d}")


# --- Reading.


class TextBlock(NamedTuple):
    """Some lines of the input, and where they come from."""

    index: int
    lines: list[bytes]
    sources: list[tuple[int, str, int]]  # from this line on, this file, which it is line n of
    was_cut: bool

    def place_of(self, line: int) -> str:
        """The file and line number, for messages."""
        first, path, number = [source for source in self.sources if source[0] <= line][-1]
        return f"{path}, line {number + line - first}"


def read_blocks(files: Iterable[str]) -> Iterator[TextBlock]:
    """Cuts files into blocks, between documents unless they are too long.

    Raises:
      UserError: a file cannot be read.
    """
    index, lines, sources, num_bytes, num_blank = 0, [], [], 0, 0
    for path in files:
        sources.append((len(lines), path, 1))
        for number, line in enumerate(_read_lines(path), start=1):
            lines.append(line)
            num_bytes += len(line)
            is_blank = not line or line.isspace()
            num_blank += is_blank
            is_large = num_blank >= BLOCK_DOCUMENTS or num_bytes >= LARGE_BLOCK_BYTES
            is_full = is_blank and num_bytes >= BLOCK_BYTES and is_large
            if is_full or num_bytes >= MOST_BLOCK_BYTES:
                yield TextBlock(index, lines, sources, was_cut=not is_full)
                index, lines, num_bytes, num_blank = index + 1, [], 0, 0
                sources = [(0, path, number + 1)]
        lines.append(b"")
        num_blank += 1
    yield TextBlock(index, lines, sources, was_cut=False)


def _read_lines(path: str) -> Iterator[bytes]:
    """The lines of a file; one of more than `MOST_LINE_BYTES` in pieces."""
    try:
        with open(path, "rb") as file:
            while line := file.readline(MOST_LINE_BYTES):
                if len(line) == MOST_LINE_BYTES:
                    line += _rest_of_character(file)
                yield line.rstrip(b"\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def _rest_of_character(file: BinaryIO) -> bytes:
    rest = b""
    while len(rest) < 3 and file.peek(1)[:1] and file.peek(1)[0] & 0xC0 == 0x80:
        rest += file.read(1)
    return rest


# --- Which examples go where.


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
    return masking.shuffled(num_units, masking.combine_seeds(plan.seed, num_units))


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
    example_bytes = 300 + 5 * settings.max_seq_length + 9 * num_slots  # of varints and names, about
    small_parts = min(MOST_SMALL_PARTS, math.ceil(num_examples / SMALL_PART_EXAMPLES))
    wanted = max(small_parts, math.ceil(num_examples * example_bytes / PART_BYTES))
    num_shards = settings.num_shards or wanted
    if settings.output_file:
        num_shards = len(settings.output_file.split(","))
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


# --- The two steps, seen from the main process.


def _tokenize(job: Job, workers: "Workers") -> dict[str, Any]:
    """Step 1; returns the counts of all blocks."""
    summary_file = os.path.join(job.work_folder, "text.json")
    if (counts := _read_json(summary_file)) is not None:
        return counts
    total: dict[str, Any] = collections.Counter()
    first_invalid_line = ""
    num_bytes = total_bytes(job.files)
    with Progress("tokenized", num_bytes, " bytes") as progress:
        tasks = ((tokenize_block, block) for block in read_blocks(job.files))
        for counts in workers.run_all(tasks):
            first_invalid_line = first_invalid_line or counts.pop("first_invalid_line")
            total.update(counts)
            facts = f"{total['documents']:,} documents, {total['tokens']:,} tokens"
            progress.show(total["text_bytes"], facts)
    del total["bytes"]  # of the stored blocks
    counts = {**total, "first_invalid_line": first_invalid_line}
    with _writing(job.settings.folder):
        _write_json(summary_file, counts)
    return counts


def _build_shards(
    job: Job, workers: "Workers", plan: Plan, num_examples: int
) -> list[dict[str, Any]]:
    """Step 2; returns the counts and file name of each shard."""
    shard_paths = [job.shard_path(shard, plan.num_shards) for shard in range(plan.num_shards)]
    results = {}
    for shard, path in enumerate(shard_paths):
        if counts := finished(path, job.work_folder):
            results[shard] = counts
    missing = [shard for shard in range(plan.num_shards) if shard not in results]
    num_there = sum(counts["examples"] for counts in results.values())
    with Progress("made", num_examples, " examples", num_there) as progress:
        tasks = (
            (build_part, plan, part, _part_path(job, plan, shard, part))
            for shard in missing
            for part in plan.parts_of(shard)
        )
        counts_of_parts = workers.run_all(
            tasks, lambda: progress.show(num_there + workers.num_examples_made())
        )
        for shard in missing:
            counts = list(itertools.islice(counts_of_parts, len(plan.parts_of(shard))))
            results[shard] = (
                counts[0] if len(counts) == 1 else _join_parts(job, plan, shard, counts)
            )
        progress.show(num_examples)
    return [
        {**results[shard], "file": os.path.basename(path)} for shard, path in enumerate(shard_paths)
    ]


def _part_path(job: Job, plan: Plan, shard: int, part: int) -> str:
    if plan.num_parts == plan.num_shards:
        return job.shard_path(shard, plan.num_shards)
    return os.path.join(job.work_folder, f"part-{part:06d}")


def _join_parts(
    job: Job, plan: Plan, shard: int, counts_of_parts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Makes a shard of its parts, which both TFRecord and gzip files allow to be put in a row."""
    counts = dict(sum(map(collections.Counter, counts_of_parts), collections.Counter()))
    paths = [_part_path(job, plan, shard, part) for part in plan.parts_of(shard)]
    shard_path = job.shard_path(shard, plan.num_shards)
    with written_whole(shard_path, job.work_folder, counts) as file:
        for path in paths:
            with open(path, "rb") as part_file:
                shutil.copyfileobj(part_file, file, 1 << 20)
    for path in paths:
        os.remove(path)
    return counts


class Workers:
    """Processes that run tasks; with one worker, this process."""

    def __init__(self, settings: PretrainingDataSettings, work_folder: str):
        # Forking a process that has threads, as NumPy's, is unsafe.
        context = multiprocessing.get_context("spawn")
        self._examples_made = context.Value("q", 0)
        self._num_workers = settings.num_workers_used
        arguments = (settings, work_folder, self._examples_made)
        if self._num_workers == 1:
            _start_worker(*arguments)
            self._pool = None
        else:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self._num_workers, context, _start_worker_process, arguments
            )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def num_examples_made(self) -> int:
        """Examples that all workers have written so far."""
        return self._examples_made.value

    def run_all(
        self, tasks: Iterable[tuple], while_waiting: Callable[[], None] = lambda: None
    ) -> Iterator[Any]:
        """Runs (function, argument, ...) tasks and gives their results in order.

        Only a few tasks are taken ahead, so that their arguments need little memory.

        Raises:
          UserError: a task has raised it, or a process was killed.
        """
        pending: collections.deque[concurrent.futures.Future] = collections.deque()
        for function, *arguments in tasks:
            if self._pool is None:
                while_waiting()
                yield function(*arguments)
                continue
            if len(pending) > 2 * self._num_workers:
                yield _result(pending.popleft(), while_waiting)
            pending.append(self._pool.submit(function, *arguments))
        while pending:
            yield _result(pending.popleft(), while_waiting)


def _result(future: concurrent.futures.Future, while_waiting: Callable[[], None]) -> Any:
    try:
        while True:
            while_waiting()
            with contextlib.suppress(TimeoutError):
                return future.result(timeout=0.5)
    except concurrent.futures.process.BrokenProcessPool:
        raise UserError(
            "a worker process was killed, for want of memory perhaps; start again to go on, with fewer"
            " --num_workers"
        ) from None


class Progress:
    """A bar on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, verb: str, total: int, unit: str, done: int = 0):
        self._verb, self._total, self._unit, self._first = verb, total, unit, done
        self._start = self._last_line = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            self._bar = tqdm(
                total=total, initial=done, desc=verb, unit=unit, unit_scale=True, dynamic_ncols=True
            )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, done: int, facts: str = "") -> None:
        """Shows how much is done."""
        now = time.monotonic()
        if self._bar is not None:
            self._bar.set_postfix_str(facts, refresh=False)
            self._bar.update(done - self._bar.n)
        elif now - self._last_line >= 10 and done > self._first:
            self._last_line = now
            speed = (done - self._first) / (now - self._start)
            left = (self._total - done) / speed
            _note(
                f"{self._verb} {done:,} of {self._total:,}{self._unit} ({done / self._total:.0%}),"
                f" {speed:,.0f}{self._unit}/s, {left:,.0f} s left{facts and ': '}{facts}"
            )


def _note(message: str) -> None:
    print_note("create_pretraining_data", message)


# --- The two steps, seen from a worker.


class _Worker:
    """What a process needs for every task."""

    def __init__(self, settings: PretrainingDataSettings, work_folder: str, examples_made: Any):
        self.settings = settings
        self.work_folder = work_folder
        self.examples_made = examples_made
        self.tokenizer = tokenizer = Tokenizer.from_file(
            settings.spm_model_file, do_lower_case=settings.do_lower_case
        )
        self.ids_type = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.int32
        is_word_start = tokenizer.word_starts(settings.word_start_rule)
        self.pair_rule = masking.pair_rule(
            is_word_start,
            max_seq_length=settings.max_seq_length,
            short_seq_prob=settings.short_seq_prob,
            sentence_task=settings.sentence_task,
            single_segment=settings.single_segment,
        )
        self.masking_rule = masking.masking_rule(
            is_word_start,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            mask_id=tokenizer.mask_id,
            masked_lm_prob=settings.masked_lm_prob,
            max_predictions_per_seq=settings.max_predictions_per_seq,
            ngram=settings.ngram,
            favor_shorter_ngram=settings.favor_shorter_ngram,
            do_whole_word_mask=settings.do_whole_word_mask,
            do_permutation=settings.do_permutation,
        )

    def plan_pass(
        self, documents: masking.Documents, block: int, number: int
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """The pairs of one pass through a block (`masking.plan_pairs`)."""
        seed = masking.combine_seeds(self.settings.random_seed, number, block)
        return masking.plan_pairs(documents, self.pair_rule, seed)


_worker: _Worker  # set in every process that runs tasks


def _start_worker(*arguments) -> None:
    global _worker
    _worker = _Worker(*arguments)


def _start_worker_process(*arguments) -> None:
    # The main process answers Ctrl-C. If it is killed, it can tell nobody.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _start_worker(*arguments)


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def tokenize_block(block: TextBlock) -> dict[str, Any]:
    """Tokenizes and stores a block, unless that was done before; returns its counts.

    Raises:
      UserError: a line is not UTF-8 and `--invalid_utf8=error`, or the disk is full.
    """
    path = _block_path(_worker.work_folder, block.index)
    if counts := finished(path, _worker.work_folder):
        return counts
    texts, document_numbers, invalid_lines = decode_lines(block.lines)
    if invalid_lines and _worker.settings.invalid_utf8 == "error":
        raise InputError(
            f"{block.place_of(invalid_lines[0])}: not UTF-8 ({len(invalid_lines)} such lines near there);"
            " --invalid_utf8=replace reads on"
        )
    documents = _as_documents(_worker.tokenizer.encode_batch(texts), document_numbers)
    sentences_of_documents = np.diff(documents.document_offsets)
    plans = [
        _worker.plan_pass(documents, block.index, number)
        for number in range(_worker.settings.dupe_factor)
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
    with written_whole(path, _worker.work_folder, counts) as file:
        for array in documents:
            np.save(file, array)
    return counts


def decode_lines(lines: list[bytes]) -> tuple[list[str], list[int], list[int]]:
    """Splits lines into documents.

    Example:
      [b"One.", b"Two.", b"", b"Three."] -> ["One.", "Two.", "Three."], [0, 0, 1], []

    Returns:
      The sentences, the number of each one's document, and the indices of lines that are not UTF-8, whose bad
      bytes are U+FFFD in the sentences.
    """
    texts, document_numbers, invalid_lines = [], [], []
    document = 0
    for index, line in enumerate(lines):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            invalid_lines.append(index)
            text = line.decode(errors="replace")
        if text and not text.isspace():
            texts.append(text)
            document_numbers.append(document)
        else:
            document += 1
    return texts, document_numbers, invalid_lines


def _as_documents(sentences: list[np.ndarray], document_numbers: list[int]) -> masking.Documents:
    """Joins sentences; those without any piece go."""
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    numbers = np.array(document_numbers, np.int64)[lengths > 0]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    return masking.Documents(
        ids=np.concatenate([np.empty(0, np.int32), *sentences]).astype(_worker.ids_type),
        sentence_offsets=np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64),
        document_offsets=np.append(starts, len(numbers)).astype(np.int64),
    )


def _load_block(block: int) -> masking.Documents:
    with open(_block_path(_worker.work_folder, block), "rb") as file:
        return masking.Documents(*(np.load(file) for _ in masking.Documents._fields))


def build_part(plan: Plan, part: int, path: str) -> dict[str, Any]:
    """Makes, shuffles and writes the examples of a part, unless that was done before; returns its counts.

    Raises:
      UserError: the disk is full.
    """
    if counts := finished(path, _worker.work_folder):
        return counts
    settings = _worker.settings
    ids, pairs, seeds = _plan_examples(plan, part)
    order = masking.shuffled(len(pairs), masking.combine_seeds(settings.random_seed, part, 1))
    compressor = zlib.compressobj(wbits=31) if settings.compression == "gzip" else None
    counts = dict.fromkeys(("examples", "pieces", "masked_pieces", "label_0", "label_1"), 0)
    with written_whole(path, _worker.work_folder, counts) as file:
        for start in range(0, len(order), BATCH_EXAMPLES):
            rows = order[start : start + BATCH_EXAMPLES]
            features = masking.make_examples(
                ids,
                pairs[rows],
                seeds[rows],
                _worker.masking_rule,
                max_seq_length=settings.max_seq_length,
            )
            records = record_writer.encode_examples(features).data
            file.write(compressor.compress(records) if compressor else records)
            _count(features, counts)
            with _worker.examples_made.get_lock():
                _worker.examples_made.value += len(rows)
        if compressor:
            file.write(compressor.flush())
    return counts


def _plan_examples(plan: Plan, part: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids that a part needs, and its pairs and seeds (`masking.plan_pairs`)."""
    ids_of_blocks, all_pairs, all_seeds = [], [], []
    first_id, num_dealt = 0, 0
    for block, units in itertools.groupby(plan.units_of(part), key=lambda unit: unit[0]):
        documents = _load_block(block)
        for _, number, slice_index in units:
            pairs, seeds, _ = _worker.plan_pass(documents, block, number)
            # Shuffled, or the same documents of each pass could end up in the same part.
            order = masking.shuffled(len(pairs), masking.combine_seeds(plan.seed, number, block, 1))
            first = (part - num_dealt) % plan.num_parts if plan.is_small else slice_index
            rows = order[first :: plan.num_slices]
            num_dealt += len(pairs)
            pairs = pairs[rows]
            pairs[:, : masking.LABEL] += first_id
            all_pairs.append(pairs)
            all_seeds.append(seeds[rows])
        ids_of_blocks.append(documents.ids)
        first_id += len(documents.ids)
    return np.concatenate(ids_of_blocks), np.concatenate(all_pairs), np.concatenate(all_seeds)


def _count(features: dict[str, np.ndarray], counts: dict[str, Any]) -> None:
    num_examples = len(features["input_ids"])
    num_changed = int(features["next_sentence_labels"].sum())
    counts["examples"] += num_examples
    counts["pieces"] += int(features["input_mask"].sum())
    counts["masked_pieces"] += int(features["masked_lm_weights"].sum())
    counts["label_0"] += num_examples - num_changed
    counts["label_1"] += num_changed


if __name__ == "__main__":
    cli.run(main, PretrainingDataSettings)
