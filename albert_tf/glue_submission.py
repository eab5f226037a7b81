r"""Collects predictions in a zip file for the GLUE leaderboard.

    albert-tf submission --runs=runs/cola,runs/mnli --output_file=submission.zip --fill_missing

A run with --do_predict writes a file such as `predictions/CoLA.tsv` to its folder. A submission needs answers to all
eleven test sets. Test sets without a run can be answered with a constant, so that a single task can be scored.
"""

import dataclasses
import io
import os
import sys
import zipfile
from collections.abc import Mapping

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from albert_tf.tasks.classification.glue import (
    GLUE_TASKS,
    SUBMISSION_FOLDER,
    SUBMISSION_HEADER,
    LeaderboardFile,
)

# The files of a submission by name: those of the tasks that have a place on the leaderboard.
FILES: Mapping[str, LeaderboardFile] = {
    file.name: file for task in GLUE_TASKS.values() for file in task.leaderboard.values()
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubmissionSettings(Settings):
    """Which runs are collected."""

    runs: str = setting(
        "", "Folders of finished runs, separated by commas.", input_path=True, required=True
    )
    output_file: str = setting("", "Zip file to write.", required=True)
    fill_missing: bool = setting(
        False, "Whether test sets that no run has answered get a constant answer."
    )


def main(settings: SubmissionSettings) -> None:
    """Collects and writes a submission."""
    contents = collect(settings.runs)
    missing = [name for name in FILES if name not in contents]
    if missing and not settings.fill_missing:
        raise UserError(
            f"--runs: no run has {SUBMISSION_FOLDER}/{', '.join(missing)}; give further runs,"
            " or --fill_missing to answer with a constant"
        )
    contents |= {name: constant_answers(name) for name in missing}
    with files.OutputFile(settings.output_file) as output:
        output.write(_zipped(contents))
    filled = ", ".join(f"{name} ({FILES[name].constant_answer})" for name in missing)
    told = f"; answered with a constant: {filled}" if filled else ""
    message = f"submission: {len(contents)} files -> {settings.output_file}{told}"
    print(message, file=sys.stderr, flush=True)


def collect(runs: str) -> dict[str, bytes]:
    """Reads the leaderboard's files in the folders of runs; returns them by name."""
    paths: dict[str, str] = {}
    for run in dict.fromkeys(map(os.path.normpath, filter(None, runs.split(",")))):
        places = {name: os.path.join(run, SUBMISSION_FOLDER, name) for name in FILES}
        found = {name: path for name, path in places.items() if os.path.isfile(path)}
        if not found:
            raise UserError(
                f"--runs: {run} has no predictions for a GLUE test set; run it with --do_predict"
            )
        for name in found.keys() & paths.keys():
            raise UserError(f"--runs: {paths[name]} and {found[name]} answer the same; drop one")
        paths |= found
    contents = {name: files.read_bytes(path) for name, path in paths.items()}
    for name, content in contents.items():
        header, *rows = content.decode().splitlines()
        if header != SUBMISSION_HEADER or len(rows) != FILES[name].num_rows:
            raise UserError(
                f"{paths[name]}: has {len(rows):,} answers, expected {FILES[name].num_rows:,} after the header;"
                " is it the whole test set?"
            )
    return contents


def constant_answers(name: str) -> bytes:
    """A file with the same answer to every example."""
    file = FILES[name]
    rows = [f"{index}\t{file.constant_answer}" for index in range(file.num_rows)]
    return ("\n".join([SUBMISSION_HEADER, *rows]) + "\n").encode()


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
