"""Text -> records, with Apache Beam on any number of machines.

The functions of `build.py` tokenize the same blocks and divide them into the same parts, so shards and metadata equal
those of the local engine, byte for byte. The two engines differ in how they find the blocks. In the local engine, a
single process reads the whole text line by line and numbers the blocks. Here this is done in parallel:

1. Workers read *ranges* of about 64 MiB of the files and note where their blank lines are.
2. One worker reads these notes, 24 bytes per document, and decides where blocks begin and end. It
   reads text only where a document is so long that a block ends inside it.
3. Workers read, tokenize and store the blocks.
4. The counts of all blocks determine the parts and shards.
5. Workers make shards from stored blocks.

The steps pass positions and counts to each other; text and token ids are passed through files in `.unfinished`. A task
may be given to a worker again, by the runner or when a killed run is resumed; it does nothing if its file is complete.
In the last step a task is a shard, so this step can use at most as many workers as there are shards.
"""

import array
import collections
import logging
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from albert_tf.core.errors import UserError
from albert_tf.core.workers import num_cores
from albert_tf.data_prep.pretraining import beam_files, build, text_blocks
from albert_tf.data_prep.pretraining.beam_files import BeamFileAccess
from albert_tf.data_prep.pretraining.build import Job, RecordFile
from albert_tf.data_prep.pretraining.plan import InputError, Plan, plan_parts
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.data_prep.pretraining.text_blocks import Position, TextBlock
from albert_tf.text.tokenizer import Tokenizer

RANGE_BYTES = 64 << 20

BEAM_RUNNERS = {
    "direct": "DirectRunner",
    "flink": "FlinkRunner",
    "spark": "SparkRunner",
    "dataflow": "DataflowRunner",
    "portable": "PortableRunner",
}


def create_pretraining_data(settings: PretrainingDataSettings) -> tuple[dict[str, Any], bool]:
    """`build.create_pretraining_data`, on the runner that the settings name.

    Returns:
      The content of `metadata.json`, and whether all records existed before.

    Raises:
      UserError: see `build.create_pretraining_data`; or a file system is not available.
    """
    options = pipeline_options(settings)
    FileSystems.set_options(options)
    inputs = beam_files.expand_inputs(settings.input_file)
    path = settings.vocabulary_file
    tokenizer = Tokenizer.from_bytes(beam_files.read_bytes(path), **settings.cleaning, source=path)

    def run(job: Job) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        _run(build_pipeline(options, job))
        summary = job.work.files.read_json(_summary_file(job))
        return summary["text"], summary["shards"]

    return build.complete_run(settings, tokenizer, inputs, BeamFileAccess(), run)


def pipeline_options(settings: PretrainingDataSettings) -> PipelineOptions:
    """The options of Beam: those that `--runner` and `--num_workers` imply, followed by the user's."""
    options = [f"--runner={BEAM_RUNNERS[settings.runner]}"]
    if settings.runner == "direct":
        num_workers = settings.num_workers or num_cores()
        mode = "in_memory" if num_workers == 1 else "multi_processing"
        options += [f"--direct_num_workers={num_workers}", f"--direct_running_mode={mode}"]
        # Has no effect on a pipeline without triggers, but prevents Beam from downloading another runner (Prism).
        options += ["--allow_unsafe_triggers"]
        # The run raises a single error; the workers' logs would repeat it.
        options += ["--default_sdk_harness_log_level=CRITICAL"]
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    return PipelineOptions([*options, *shlex.split(settings.pipeline_options)])


def build_pipeline(options: PipelineOptions, job: Job) -> beam.Pipeline:
    """The pipeline of a run, whose last step writes counts for `build.complete_run`.

    Args:
      options: options of Beam.
      job: the job, which is sent to every worker; its work folder names the files of the corpus.
    """
    pipeline = beam.Pipeline(options=options)
    num_scanned = (
        pipeline
        | "Job" >> beam.Create([None])
        | "ListRanges" >> beam.FlatMap(lambda _: ranges_of(input_files(job)))
        | "SpreadRanges" >> beam.Reshuffle()
        | "FindBlankLines" >> beam.Map(scan_range, job)
        | "CountRanges" >> beam.combiners.Count.Globally()
    )
    text_counts = (
        num_scanned  # so that all ranges are scanned first
        | "CutIntoBlocks" >> beam.FlatMap(lambda _: cut_into_blocks(job))
        | "SpreadBlocks" >> beam.Reshuffle()
        | "Tokenize" >> beam.Map(tokenize, job)
        | "SumCounts" >> beam.CombineGlobally(sum_counts)
        | "TextCounts" >> beam.MapTuple(text_counts_of)
    )
    shards = (
        text_counts
        | "Plan" >> beam.FlatMap(plan_shards, job.settings)
        | "SpreadShards" >> beam.Reshuffle()
        | "MakeShards" >> beam.Map(make_shard, job)
        | "AllShards" >> beam.combiners.ToList()
    )
    _ = shards | "Summarize" >> beam.Map(write_summary, job, beam.pvalue.AsSingleton(text_counts))
    return pipeline


def _summary_file(job: Job) -> str:
    return job.work.file("summary.json")


def _run(pipeline: beam.Pipeline) -> None:
    """Runs a pipeline to its end; a user error of a worker is raised again here."""
    try:
        state = pipeline.run().wait_until_finish()
    except Exception as error:
        # Most runners raise another error whose message contains the text of the worker's error.
        text = f"{type(error).__name__}: {error}".replace("\\n", "\n")
        match = re.search(r"\b(InputError|UserError): (.*?)(?: \[while running|$)", text, re.M)
        if not match:
            raise
        error_class = InputError if match[1] == "InputError" else UserError
        raise error_class(match[2]) from None
    if state != PipelineState.DONE:
        raise UserError(f"the pipeline ended in state {state}; its runner's log says why")


# --- Steps 1 and 2: where the blocks are.


class Range(NamedTuple):
    """The lines of a file that begin in a range of bytes."""

    index: int  # among all ranges
    file: int  # among all files
    path: str
    start: int
    end: int
    ends_file: bool


def input_files(job: Job) -> list[dict[str, Any]]:
    """For each file of the corpus a dictionary of `file`, its path, and `bytes`, its size."""
    return job.work.files.read_json(job.work.file("settings.json"))["input_files"]


def ranges_of(files: Sequence[dict[str, Any]]) -> list[Range]:
    """Ranges of `RANGE_BYTES` at most, in order; an empty file has a range too."""
    ranges = []
    for number, file in enumerate(files):
        for start in range(0, max(file["bytes"], 1), RANGE_BYTES):
            end = min(start + RANGE_BYTES, file["bytes"])
            is_last = end == file["bytes"]
            ranges.append(Range(len(ranges), number, file["file"], start, end, is_last))
    return ranges


def scan_range(part: Range, job: Job) -> None:
    """Writes a file that says where the blank lines of a range are, unless it is complete already.

    The file holds an int64 [blank lines + 1, 3]. Each row describes the end of a blank line, the last row the end of
    the range: bytes of the file before it; then bytes without line ends, and lines, of this range before it.

    Raises:
      UserError: the text cannot be read, or the file cannot be written.
    """
    path = _notes_file(job, part)
    if job.work.counts_of(path) is not None:
        return
    places, num_bytes, num_lines = array.array("q"), 0, 0
    # The byte before the range tells whether a line begins with it.
    offset = max(part.start - 1, 0)
    is_ours = part.start == 0
    for line in text_blocks.read_lines(part.path, offset, open_file=job.work.files.open):
        is_whole = line.endswith(b"\n")
        offset += len(line)
        if is_ours:
            num_lines += 1
            num_bytes += len(line) - is_whole
            if line.isspace():
                places.extend((offset, num_bytes, num_lines))
        # A line that is cut because of its length belongs to the range in which it begins.
        if is_whole and offset >= part.end:
            break
        is_ours = is_ours or is_whole
    places.extend((part.end, num_bytes, num_lines))
    with job.work.writing(path, {}) as file:
        np.save(file, np.frombuffer(places, np.int64).reshape(-1, 3))


def _notes_file(job: Job, part: Range) -> str:
    return job.work.file(f"blank-lines-{part.index:06d}")


class FilePart(NamedTuple):
    """The part of a block that is in one file."""

    path: str
    start: int  # bytes before it
    end: int | None  # None: to the end of the file
    line: int  # number of its first line


class BlockPlace(NamedTuple):
    """The files and lines in which the text of a block is."""

    index: int
    parts: list[FilePart]
    was_cut: bool


class _Place(NamedTuple):
    """A place between two lines, and the amount of text before it."""

    position: Position
    num_bytes: int  # without line ends
    num_blank: int  # blank lines and ends of files


def cut_into_blocks(job: Job) -> Iterator[BlockPlace]:
    """Finds the blocks of `text_blocks.read_blocks` from the notes of `scan_range`; yields their places.

    Raises:
      UserError: a file cannot be read.
    """
    files = input_files(job)
    paths = [file["file"] for file in files]
    start, index = Position(), 0
    for end, was_cut in _block_ends(job, paths, ranges_of(files)):
        yield BlockPlace(index, _parts_between(start, end, paths), was_cut)
        start, index = end, index + 1
    yield BlockPlace(index, _parts_between(start, None, paths), False)


def _parts_between(start: Position, end: Position | None, paths: Sequence[str]) -> list[FilePart]:
    last = end.file if end else len(paths) - 1
    firsts = [start, *(Position(file) for file in range(start.file + 1, last + 1))]
    return [
        FilePart(paths[file], offset, end.offset if end and file == last else None, line)
        for file, offset, line in firsts
    ]


def _block_ends(
    job: Job, paths: Sequence[str], ranges: Sequence[Range]
) -> Iterator[tuple[Position, bool]]:
    """Where each block but the last one ends, and whether its document was cut there."""
    start = _Place(Position(), 0, 0)
    for here, is_blank in _places(job, ranges):
        # The text is too long for a block, which therefore ends after the blank line before this one.
        while here.num_bytes - start.num_bytes >= text_blocks.MOST_BLOCK_BYTES:
            open_file = job.work.files.open
            block = next(text_blocks.read_blocks(paths, start.position, open_file=open_file))
            start = _end_of(block, start, here, num_blank=here.num_blank - is_blank)
            yield start.position, block.was_cut
        num_bytes, num_blank = here.num_bytes - start.num_bytes, here.num_blank - start.num_blank
        if is_blank and text_blocks.can_end_block(num_bytes, num_blank):
            start = here
            yield start.position, False


def _places(job: Job, ranges: Sequence[Range]) -> Iterator[tuple[_Place, bool]]:
    """The ends of all blank lines (True) and of all files (False); a file's end counts as a blank line after it."""
    num_bytes, num_blank, num_lines = 0, 0, 0
    for part in ranges:
        with job.work.files.open(_notes_file(job, part)) as file:
            *blank_lines, (_, bytes_of_range, lines_of_range) = np.load(file).tolist()
        for offset, bytes_before, lines_before in blank_lines:
            num_blank += 1
            position = Position(part.file, offset, num_lines + lines_before + 1)
            yield _Place(position, num_bytes + bytes_before, num_blank), True
        num_bytes += bytes_of_range
        num_lines += lines_of_range
        if part.ends_file:
            position = Position(part.file, part.end, num_lines + 1)
            yield _Place(position, num_bytes, num_blank), False
            num_blank, num_lines = num_blank + 1, 0


def _end_of(block: TextBlock, start: _Place, here: _Place, *, num_blank: int) -> _Place:
    """The end of a block that begins at `start`; it is at `here`, after `num_blank` blank lines, or before that."""
    first, _, line_number = block.sources[-1]
    lines = block.lines[first:]
    offset = start.position.offset if len(block.sources) == 1 else 0
    # A line that was cut has no line end; neither does the last line of a file.
    offset += sum(len(line) + (len(line) < text_blocks.MOST_LINE_BYTES) for line in lines)
    if offset >= here.position.offset:
        return here
    file = start.position.file + len(block.sources) - 1
    num_bytes = start.num_bytes + sum(map(len, block.lines))
    return _Place(Position(file, offset, line_number + len(lines)), num_bytes, num_blank)


def read_block(place: BlockPlace, job: Job) -> TextBlock:
    """Reads a block.

    Raises:
      UserError: it cannot be read.
    """
    lines, sources = [], []
    for part in place.parts:
        sources.append((len(lines), part.path, part.line))
        offset = part.start
        for line in text_blocks.read_lines(part.path, offset, open_file=job.work.files.open):
            lines.append(line.rstrip(b"\n"))
            offset += len(line)
            if offset == part.end:
                break
        if part.end is None:
            lines.append(b"")
    return TextBlock(place.index, lines, sources, place.was_cut)


# --- Steps 3 to 5: tokenize blocks and make shards from them.


def tokenize(place: BlockPlace, job: Job) -> tuple[tuple[float, str], dict[str, int]]:
    """Calls `build.tokenize_block`; returns the block's number (infinite if all lines are valid) with its first invalid
    line, and its other counts.
    """
    counts = build.tokenize_block(job, read_block(place, job))
    line = counts.pop("first_invalid_line")
    return (place.index if line else math.inf, line), counts


def sum_counts(
    of_blocks: Iterable[tuple[tuple[float, str], Mapping[str, int]]],
) -> tuple[tuple[float, str], dict[str, int]]:
    """Adds up results of `tokenize`; the arguments may be sums, too."""
    first_invalid_line, total = (math.inf, ""), collections.Counter()
    for line, counts in of_blocks:
        first_invalid_line = min(first_invalid_line, line)
        total.update(counts)
    return first_invalid_line, dict(total)


def text_counts_of(
    first_invalid_line: tuple[float, str], total: Mapping[str, int]
) -> dict[str, Any]:
    """The result of `build.tokenize_text`, except for `bytes`, the size of the stored blocks."""
    counts = {key: number for key, number in total.items() if key != "bytes"}
    return {**counts, "first_invalid_line": first_invalid_line[1]}


def plan_shards(
    text_counts: dict[str, Any], settings: PretrainingDataSettings
) -> Iterator[tuple[Plan, int]]:
    """The plan, once for each shard, with the shard's number.

    Raises:
      UserError: there are no examples, or fewer than files.
    """
    plan = plan_parts(settings, text_counts)
    return ((plan, shard) for shard in range(plan.num_shards))


def make_shard(planned: tuple[Plan, int], job: Job) -> tuple[int, dict[str, Any]]:
    """Makes a whole shard with `build.build_file`; returns its number, counts and file name."""
    plan, shard = planned
    path = job.settings.shard_path(shard, plan.num_shards)
    counts = build.build_file(job, RecordFile(path, plan, plan.parts_of(shard)))
    return shard, {**counts, "file": os.path.basename(path)}


def write_summary(
    shards: list[tuple[int, dict[str, Any]]], job: Job, text_counts: dict[str, Any]
) -> None:
    """Writes the counts for `build.complete_run`."""
    in_order = [counts for _, counts in sorted(shards, key=lambda numbered: numbered[0])]
    summary = {"text": text_counts, "shards": in_order}
    job.work.files.write_json(_summary_file(job), summary)
