"""The leaderboard's zip file: collected from runs, filled up, checked; every rule has a file that breaks it."""

import io
import pathlib
import zipfile

import numpy as np
import pytest

from albert_tf import glue_submission
from albert_tf.core.errors import UserError
from albert_tf.glue_submission import FILES, SubmissionSettings, check_answers, constant_answers
from albert_tf.tasks.classification.glue import GLUE_TASKS, submission_tsv
from tests.helpers import run_script, write_files

SCRIPT = "-m albert_tf.glue_submission"
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
    assert {name: file.num_rows for name, (_, file) in FILES.items()} == NUM_ROWS


def test_runs_of_all_tasks_make_a_valid_submission(tmp_path, capsys):
    runs = {
        name: {k: v for group in task.leaderboard for k, v in predictions_of(name, group).items()}
        for name, task in GLUE_TASKS.items()
    }
    runs["MNLI"] |= runs.pop("AX")  # the run that answers MNLI answers the diagnostic set too
    write_runs(tmp_path, **runs)
    path = submit(tmp_path, runs)
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == sorted(NUM_ROWS)
        for files in runs.values():
            for name, text in files.items():
                assert archive.read(name.removeprefix("predictions/")).decode() == text
    assert "constant" not in capsys.readouterr().err
    glue_submission.main(SubmissionSettings(check=path))
    assert "all 11 files are valid" in capsys.readouterr().err


def test_a_single_task_is_filled_up(tmp_path, capsys):
    write_runs(tmp_path, cola=predictions_of("CoLA"), other={"results.json": "{}"})
    path = submit(tmp_path, ["cola"], fill_missing=True)
    message = capsys.readouterr().err
    assert "answered with a constant: SST-2.tsv (1), MRPC.tsv (1), STS-B.tsv (2.701)" in message
    assert "CoLA" not in message
    with zipfile.ZipFile(path) as archive:
        assert archive.read("CoLA.tsv").decode() == predictions_of("CoLA")["predictions/CoLA.tsv"]
        assert archive.read("WNLI.tsv").decode().splitlines()[1:] == [f"{i}\t0" for i in range(146)]
    before = pathlib.Path(path).read_bytes()
    assert pathlib.Path(submit(tmp_path, ["cola"], fill_missing=True)).read_bytes() == before


def test_missing_tasks_are_named(tmp_path):
    write_runs(tmp_path, mnli=predictions_of("MNLI", "matched"), rte=predictions_of("RTE"))
    with pytest.raises(
        UserError, match=r"no run has predictions/CoLA.tsv, .*MNLI-mm.tsv.*WNLI.tsv, AX.tsv; give"
    ) as e:
        submit(tmp_path, ["mnli", "rte"])
    assert "RTE" not in str(e.value) and "MNLI-m.tsv" not in str(e.value)
    assert not (tmp_path / "out").exists()


def test_globs_name_runs(tmp_path):
    write_runs(tmp_path, run_a=predictions_of("CoLA"), run_b=predictions_of("RTE"))
    assert set(glue_submission.collect(str(tmp_path / "run_*"))) == {"CoLA.tsv", "RTE.tsv"}


def test_two_answers_to_one_task_are_refused(tmp_path):
    write_runs(tmp_path, a=predictions_of("CoLA"), b=predictions_of("CoLA", seed=1))
    with pytest.raises(
        UserError, match=r"a/predictions/CoLA.tsv and \S+b/predictions/CoLA.tsv answer"
    ):
        submit(tmp_path, ["a", "b"], fill_missing=True)
    assert set(glue_submission.collect(f"{tmp_path}/a,{tmp_path}/a/")) == {"CoLA.tsv"}


def test_a_run_without_answers_is_refused(tmp_path):
    write_runs(tmp_path, a=predictions_of("CoLA"), b={"results.json": "{}"})
    with pytest.raises(
        UserError, match=r"b has no predictions for a GLUE test set; run it with --do"
    ):
        submit(tmp_path, ["a", "b"], fill_missing=True)


# What is wrong with a file: its name, what is replaced in a valid one by what -> the message.
WRONG = {
    "header": ("WNLI.tsv", "index", "id", r":1: expected the header 'index\\tprediction', got"),
    "no header": ("WNLI.tsv", "index\tprediction\n", "", r":1: expected the header"),
    "too few": ("WNLI.tsv", "\n145\t0", "", r"expected 146 rows, got 145; is it the"),
    "too many": ("WNLI.tsv", "\n145\t0", "\n145\t0\n146\t0", r"expected 146 rows, got 147"),
    "gap": ("WNLI.tsv", "\n12\t", "\n13\t", r":14: expected index 12, got '13'"),
    "float index": ("WNLI.tsv", "\n0\t", "\n0.0\t", r":2: expected index 0, got '0.0'"),
    "commas": ("WNLI.tsv", "\n3\t0", "\n3,0", r":5: expected 2 columns, got 1"),
    "blank line": ("WNLI.tsv", "\n3\t", "\n\n3\t", r":5: expected 2 columns, got 1"),
    "word": ("WNLI.tsv", "\n3\t0", "\n3\tentailment", r":5: expected 0 or 1, got 'entail"),
    "float": ("WNLI.tsv", "\n3\t0", "\n3\t0.0", r":5: expected 0 or 1, got '0.0'"),
    "index of label": ("RTE.tsv", "\n3\tentailment", "\n3\t0", r"entailment or not_.*got '0'"),
    "below": ("STS-B.tsv", "\n3\t2.701", "\n3\t-0.1", r":5: expected a number from 0.0 to 5.0"),
    "above": ("STS-B.tsv", "\n3\t2.701", "\n3\t5.1", r"got '5.1'"),
    "nan": ("STS-B.tsv", "\n3\t2.701", "\n3\tnan", r"got 'nan'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_every_rule_is_checked(case):
    name, old, new, message = WRONG[case]
    valid = constant_answers(name).decode()
    check_answers(name, valid.encode(), "it")
    check_answers(name, valid.rstrip("\n").replace("\n", "\r\n").encode(), "it")
    assert valid.count(old) == 1
    with pytest.raises(UserError, match=f"^it.*{message}") as error:
        check_answers(name, valid.replace(old, new).encode(), "it")
    assert len(str(error.value).splitlines()) == 1


def test_bytes_that_are_no_text():
    with pytest.raises(UserError, match=r"^it: is not UTF-8$"):
        check_answers("WNLI.tsv", b"index\tprediction\n0\t\xff\n", "it")


def zip_of(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return str(path)


def test_checking_a_zip(tmp_path):
    valid = {name: constant_answers(name) for name in FILES}
    check = lambda path: glue_submission.main(SubmissionSettings(check=path))  # noqa: E731
    check(zip_of(tmp_path / "valid.zip", valid))
    folder = {f"submission/{name}": content for name, content in valid.items()}
    with pytest.raises(
        UserError, match=r"a.zip: holds 'submission/CoLA.tsv'; expected only CoLA.tsv"
    ):
        check(zip_of(tmp_path / "a.zip", folder))
    with pytest.raises(UserError, match=r"b.zip: lacks MRPC.tsv, AX.tsv$"):
        left = {name: valid[name] for name in valid if name not in ("AX.tsv", "MRPC.tsv")}
        check(zip_of(tmp_path / "b.zip", left))
    with pytest.raises(UserError, match=r"c.zip: QNLI.tsv: expected 5,463 rows, got 146"):
        wrong = constant_answers("WNLI.tsv").replace(b"\t0\n", b"\tentailment\n")
        check(zip_of(tmp_path / "c.zip", valid | {"QNLI.tsv": wrong}))
    (tmp_path / "d.zip").write_text("no zip")
    with pytest.raises(UserError, match=r"d.zip: is not a readable zip file"):
        check(str(tmp_path / "d.zip"))


def test_any_flipped_byte_of_a_zip_is_one_line(tmp_path):
    path = tmp_path / "flipped.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("CoLA.tsv", "index\tprediction\n" + "0\t1\n" * 9)
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in (0, 3, 7):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(UserError) as caught:
                glue_submission.main(SubmissionSettings(check=str(path)))
            assert len(str(caught.value).splitlines()) == 1


def test_a_zip_that_grows_beyond_all_bounds_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(glue_submission, "_MAX_BYTES", 20_000)
    path = zip_of(tmp_path / "large.zip", {f"{number}.tsv": bytes(9000) for number in range(3)})
    with pytest.raises(UserError, match="its files have more than 20,000 bytes"):
        glue_submission.main(SubmissionSettings(check=path))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "--runs is required"),
        ({"runs": "a"}, "--output_file is required"),
        ({"check": "a", "runs": "b"}, "--runs and --check contradict"),
        ({"check": "a", "fill_missing": True}, "--fill_missing and --check contradict"),
    ],
)
def test_contradictory_flags(settings, message):
    with pytest.raises(UserError, match=message):
        SubmissionSettings(**settings)


def test_the_program(tmp_path):
    write_runs(tmp_path, run=predictions_of("STS-B"))
    output = tmp_path / "submission.zip"
    done = run_script(SCRIPT, f"--runs={tmp_path}/run", f"--output_file={output}", "--fill_missing")
    assert done.returncode == 0 and f"11 files -> {output}" in done.stderr, done.stderr
    with zipfile.ZipFile(io.BytesIO(output.read_bytes())) as archive:
        assert archive.testzip() is None
    assert run_script(SCRIPT, f"--check={output}").returncode == 0
    failed = run_script(SCRIPT, f"--runs={tmp_path}/run", f"--output_file={output}")
    assert failed.returncode == 1 and len(failed.stderr.splitlines()) == 1, failed.stderr
