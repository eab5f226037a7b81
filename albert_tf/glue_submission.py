r"""Collects predictions in a checked zip file for the GLUE leaderboard.

    albert-tf submission --runs=runs/cola,runs/mnli \
        --output_file=submission.zip --fill_missing
    albert-tf submission --check=submission.zip

A run with --do_predict writes a file such as `predictions/CoLA.tsv` to its folder. A submission needs answers to all
eleven test sets. Test sets without a run can be answered with a constant, so that a single task can be scored.
"""

import contextlib
import dataclasses
import glob
import io
import os
import sys
import zipfile
import zlib
from collections.abc import Mapping

from albert_tf.core import checksums, files, flags
from albert_tf.core.errors import UserError, first_line
from albert_tf.core.settings import Settings, setting
from albert_tf.tasks.classification.glue import (
    GLUE_TASKS,
    SCORE_RANGE,
    SUBMISSION_FOLDER,
    SUBMISSION_HEADER,
    GlueTask,
    LeaderboardFile,
)

_MAX_BYTES = 256 << 20  # a whole submission has 12 MB

# Every file of a submission: its name -> its task, and its required content.
FILES: Mapping[str, tuple[GlueTask, LeaderboardFile]] = {
    file.name: (task, file) for task in GLUE_TASKS.values() for file in task.leaderboard.values()
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubmissionSettings(Settings):
    """Which runs are collected, or which file is checked."""

    runs: str = setting(
        "", "Folders of finished runs, or globs, separated by commas.", input_path=True
    )
    output_file: str = setting("", "Zip file to write.")
    fill_missing: bool = setting(
        False, "Whether test sets that no run has answered get a constant answer."
    )
    check: str = setting("", "Zip file to check; then nothing is written.", input_path=True)

    def __post_init__(self):
        super().__post_init__()
        if self.check:
            for name in ("runs", "output_file", "fill_missing"):
                if getattr(self, name):
                    self.refuse(name, "and --check contradict each other: give one")
        elif not self.runs:
            self.refuse("runs", "is required: folders of finished runs; or --check")
        elif not self.output_file:
            self.refuse("output_file", "is required: the zip file to write")


def main(settings: SubmissionSettings) -> None:
    """Collects and writes a submission, or checks one."""
    if settings.check:
        contents = _read_zip(settings.check)
        _check_all(contents, settings.check)
        _print(f"{settings.check}: all {len(contents)} files are valid")
        return
    contents = collect(settings.runs)
    missing = [name for name in FILES if name not in contents]
    if missing and not settings.fill_missing:
        raise UserError(
            f"--runs: no run has {SUBMISSION_FOLDER}/{', '.join(missing)}; give further runs,"
            " or --fill_missing to answer with a constant"
        )
    contents.update({name: constant_answers(name) for name in missing})
    _check_all(contents, settings.output_file)
    with files.OutputFile(settings.output_file) as output:
        output.write(_zipped(contents))
    if missing:
        filled = ", ".join(f"{name} ({FILES[name][1].constant_answer})" for name in missing)
        _print(f"answered with a constant: {filled}")
    _print(f"{len(contents)} files -> {settings.output_file}")


def _print(message: str) -> None:
    print(f"submission: {message}", file=sys.stderr, flush=True)


def collect(runs: str) -> dict[str, bytes]:
    """Reads and checks the leaderboard's files in the folders of runs; returns them by name."""
    paths: dict[str, str] = {}
    for run in _folders(runs):
        folder = os.path.join(run, SUBMISSION_FOLDER)
        names = [name for name in FILES if os.path.isfile(os.path.join(folder, name))]
        if not names:
            raise UserError(
                f"--runs: {run} has no predictions for a GLUE test set; run it with --do_predict"
            )
        checksums.verify(folder)
        for name in names:
            path = os.path.join(folder, name)
            if paths.setdefault(name, path) != path:
                raise UserError(f"--runs: {paths[name]} and {path} answer the same; drop one run")
    contents = {name: files.read_bytes(path) for name, path in paths.items()}
    for name, content in contents.items():
        check_answers(name, content, paths[name])
    return contents


def _folders(patterns: str) -> list[str]:
    folders: dict[str, None] = {}
    for pattern in filter(None, patterns.split(",")):
        matches = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
        folders |= dict.fromkeys(map(os.path.normpath, matches))
    return list(folders)


def constant_answers(name: str) -> bytes:
    """A file with the same answer to every example."""
    _, file = FILES[name]
    rows = [f"{index}\t{file.constant_answer}" for index in range(file.num_rows)]
    return ("\n".join([SUBMISSION_HEADER, *rows]) + "\n").encode()


# --- Checking ---


def _check_all(contents: Mapping[str, bytes], source: str) -> None:
    for name in contents:
        if name not in FILES:
            raise UserError(f"{source}: holds {name!r}; expected only {', '.join(FILES)}")
    if missing := [name for name in FILES if name not in contents]:
        raise UserError(f"{source}: lacks {', '.join(missing)}")
    for name, content in contents.items():
        check_answers(name, content, f"{source}: {name}")


def check_answers(name: str, content: bytes, source: str) -> None:
    """Checks one file: header, indices from 0 on without gaps, answers, number of rows."""
    task, file = FILES[name]
    try:
        header, *rows = content.decode().split("\n")
    except UnicodeDecodeError:
        raise UserError(f"{source}: is not UTF-8") from None
    if header.removesuffix("\r") != SUBMISSION_HEADER:
        raise UserError(f"{source}:1: expected the header {SUBMISSION_HEADER!r}, got {header!r}")
    if rows and not rows[-1]:
        rows.pop()
    for index, row in enumerate(rows):
        fields = row.removesuffix("\r").split("\t")
        place = f"{source}:{index + 2}"
        if len(fields) != 2:
            raise UserError(f"{place}: expected 2 columns, got {len(fields)}")
        if fields[0] != str(index):
            raise UserError(f"{place}: expected index {index}, got {fields[0]!r}")
        _check_answer(task, fields[1], place)
    if len(rows) != file.num_rows:
        raise UserError(
            f"{source}: expected {file.num_rows:,} rows, got {len(rows):,}; is it the whole test set?"
        )


def _check_answer(task: GlueTask, answer: str, place: str) -> None:
    if task.is_regression:
        least, most = SCORE_RANGE
        with contextlib.suppress(ValueError):
            if least <= float(answer) <= most:
                return
        raise UserError(f"{place}: expected a number from {least} to {most}, got {answer!r}")
    if answer not in task.labels:
        raise UserError(f"{place}: expected {' or '.join(task.labels)}, got {answer!r}")


# --- The zip ---


def _read_zip(path: str) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(set(names)) != len(names):
                raise UserError(f"{path}: holds a file twice")
            if sum(entry.file_size for entry in archive.infolist()) > _MAX_BYTES:
                raise UserError(f"{path}: its files have more than {_MAX_BYTES:,} bytes")
            return {name: archive.read(name) for name in names}
    # Python raises a RuntimeError for an encrypted file, a NotImplementedError for an unknown compression method.
    except (OSError, zipfile.BadZipFile, RuntimeError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: is not a readable zip file ({first_line(error)})") from None


def _zipped(contents: Mapping[str, bytes]) -> bytes:
    """A zip file without folders; equal contents give equal bytes."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in FILES:
            entry = zipfile.ZipInfo(name)  # with the date 1980
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, contents[name])
    return output.getvalue()


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    flags.run(main, SubmissionSettings, description=__doc__)


if __name__ == "__main__":
    run()
