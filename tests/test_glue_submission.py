"""The leaderboard's zip file is collected from runs, and filled up."""

import pathlib
import zipfile

import numpy as np
import pytest

from albert_tf import glue_submission
from albert_tf.core.errors import UserError
from albert_tf.glue_submission import FILES, SubmissionSettings, constant_answers
from albert_tf.tasks.classification.glue import GLUE_TASKS, submission_tsv
from tests.helpers import write_files

# gluebenchmark.com, FAQ, and the sizes of its test sets.
NUM_ROWS = {
    "AX.tsv": 1104,
    "CoLA.tsv": 1063,
    "MNLI-m.tsv": 9796,
    "MNLI-mm.tsv": 9847,
    "MRPC.tsv": 1725,
    "QNLI.tsv": 5463,
    "QQP.tsv": 390965,
    "RTE.tsv": 3000,
    "SST-2.tsv": 1821,
    "STS-B.tsv": 1379,
    "WNLI.tsv": 146,
}


def predictions_of(name, group="", seed=0):
    """The file of a run that answered at random."""
    task, rng = GLUE_TASKS[name], np.random.default_rng(seed)
    num_rows = task.leaderboard[group].num_rows
    scores, labels = rng.normal(2.5, 3, num_rows), rng.integers(0, len(task.labels) or 1, num_rows)
    answers = scores if task.is_regression else labels
    file_name, text = submission_tsv(task, group, [str(i) for i in range(num_rows)], answers)
    return {f"predictions/{file_name}": text}


def write_runs(folder, **runs):
    for run, files in runs.items():
        write_files(folder / run, files)


def submit(folder, runs, **changes):
    paths = ",".join(str(folder / run) for run in runs)
    output = str(folder / "out" / "submission.zip")
    glue_submission.main(SubmissionSettings(runs=paths, output_file=output, **changes))
    return output


def test_files_and_rows_are_the_official_ones():
    assert {name: file.num_rows for name, file in FILES.items()} == NUM_ROWS


def test_runs_of_all_tasks_make_a_submission(tmp_path):
    runs = {
        name: {k: v for group in task.leaderboard for k, v in predictions_of(name, group).items()}
        for name, task in GLUE_TASKS.items()
    }
    runs["MNLI"] |= runs.pop("AX")  # the run that answers MNLI answers the diagnostic set too
    write_runs(tmp_path, **runs)
    with zipfile.ZipFile(submit(tmp_path, runs)) as archive:
        assert sorted(archive.namelist()) == sorted(NUM_ROWS)
        for files in runs.values():
            for name, text in files.items():
                assert archive.read(name.removeprefix("predictions/")).decode() == text


def test_a_single_task_is_filled_up(tmp_path, capsys):
    write_runs(tmp_path, cola=predictions_of("CoLA"))
    path = submit(tmp_path, ["cola"], fill_missing=True)
    assert "constant: SST-2.tsv (1), MRPC.tsv (1), STS-B.tsv (2.701)" in capsys.readouterr().err
    with zipfile.ZipFile(path) as archive:
        assert archive.read("CoLA.tsv").decode() == predictions_of("CoLA")["predictions/CoLA.tsv"]
        assert archive.read("WNLI.tsv") == constant_answers("WNLI.tsv")
    before = pathlib.Path(path).read_bytes()
    assert pathlib.Path(submit(tmp_path, ["cola"], fill_missing=True)).read_bytes() == before


def test_what_is_missing_or_wrong_is_named(tmp_path):
    write_runs(
        tmp_path,
        mnli=predictions_of("MNLI", "matched"),
        a=predictions_of("CoLA"),
        b=predictions_of("CoLA", seed=1),
        none={"results.json": "{}"},
        part={"predictions/WNLI.tsv": constant_answers("WNLI.tsv").decode()[:-6]},
    )
    for runs, message in {
        ("mnli", "a"): r"no run has predictions/SST-2.tsv, .*MNLI-mm.tsv.*WNLI.tsv, AX.tsv; give",
        ("a", "b"): r"a/predictions/CoLA.tsv and \S+b/predictions/CoLA.tsv answer",
        ("a", "none"): r"none has no predictions for a GLUE test set; run it with --do",
        ("part",): r"WNLI.tsv: has 145 answers, expected 146 after the header; is it",
    }.items():
        with pytest.raises(UserError, match=message):
            submit(tmp_path, runs)
    assert not (tmp_path / "out").exists()
    assert set(glue_submission.collect(f"{tmp_path}/a,{tmp_path}/a/")) == {"CoLA.tsv"}
