"""Damaged files of a run: the same command ends with one line, or continues to the same result; never to another.

`make test` tries a sample of files and damages; ALBERT_TEST_FAULTS=all tries all.

Covers: checkpoints.py, core/run_files.py.
"""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import safetensors.numpy

from albert_tf import UserError, load_pretrained
from tests.faults.damages import DAMAGES as ALL_DAMAGES
from tests.faults.damages import flipped
from tests.helpers import TINY, TRIES_ALL, pretrain_here, random_features, write_records

pytestmark = [
    pytest.mark.usefixtures("eagerly"),
    pytest.mark.filterwarnings("ignore:.*run_functions_eagerly.*:UserWarning"),
]
STEPS = 4
# Files of a run; * is the step of the newest checkpoint.
FILES = (
    "config.json",
    "results.json",
    "metrics.jsonl",
    "eval_metrics.jsonl",
    "checkpoints/checkpoint",
    "checkpoints/step-*.index",
    "checkpoints/step-*.data-00000-of-00001",
    "checkpoints/step-*.json",
    "checkpoints/best/checkpoint",
    "checkpoints/best/best.json",
    "checkpoints/best/step-*.index",
    "checkpoints/best/step-*.data-00000-of-00001",
    "checkpoints/best/step-*.json",
    "model/config.json",
    "model/model.safetensors",
)


def garbage(path, _other):
    path.write_bytes(bytes(range(255, 0, -1)))


NAMES = ("emptied", "cut_in_half", "of_another_run", "a_folder", "a_dangling_link")
DAMAGES = (*(ALL_DAMAGES[name] for name in NAMES), flipped, garbage)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of runs of the same settings: finished, interrupted, and finished from another model; and their flags."""
    folder = tmp_path_factory.mktemp("runs")
    records = write_records(folder / "records" / "a.tfrecord", random_features(60))
    (folder / "config.json").write_text(TINY.replace(num_hidden_layers=1).to_json_string())
    flags = [
        *(f"--input_file={records}", f"--eval_file={records}", "--deterministic"),
        *(f"--albert_config_file={folder / 'config.json'}", "--train_batch_size=6"),
        *(f"--num_train_steps={STEPS}", "--num_warmup_steps=1", "--save_checkpoints_steps=1"),
        *("--eval_every_steps=1", "--max_eval_steps=1", "--log_every_steps=1"),
        "--learning_rate=0.01",
    ]
    start = [f"--num_train_steps={STEPS}", "--seed=3", f"--output_dir={folder / 'start'}"]
    pretrain_here(*flags, *start, "--stop_after_steps=1")
    other = [f"--init_checkpoint={folder / 'start'}", f"--output_dir={folder / 'other'}"]
    pretrain_here(*flags, *other)
    pretrain_here(*flags, f"--output_dir={folder / 'interrupted'}", "--stop_after_steps=2")
    (folder / "interrupted" / "results.json").unlink()
    shutil.rmtree(folder / "interrupted" / "model")
    shutil.copytree(folder / "interrupted", folder / "finished")
    pretrain_here(*flags, f"--output_dir={folder / 'finished'}")
    return folder, flags


def lines(path):
    return without_speeds(path.read_text().splitlines())


def without_speeds(lines):
    found = map(json.loads, lines)
    return [{k: v for k, v in line.items() if k != "examples_per_second"} for line in found]


def weights(folder: pathlib.Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(folder / "model" / "model.safetensors")


def assert_same_weights(folder: pathlib.Path, expected: pathlib.Path) -> None:
    found = weights(folder)
    for name, value in weights(expected).items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def assert_same(folder: pathlib.Path, expected: pathlib.Path) -> None:
    """Checks that logs, results and weights of two finished runs are equal."""
    for name in ("metrics.jsonl", "eval_metrics.jsonl"):
        assert lines(folder / name) == lines(expected / name), name
    results, wanted = (json.loads((run / "results.json").read_text()) for run in (folder, expected))
    for name in ("step", "eval", "best", "majority", "num_parameters"):
        assert results[name] == wanted[name], name
    assert_same_weights(folder, expected)


def with_step(folder: pathlib.Path, name: str) -> pathlib.Path | None:
    """The path of a file of a run; of a checkpoint, of the newest."""
    found = sorted(folder.glob(name))
    return found[-1] if found else None


def cases():
    for state in ("finished", "interrupted"):
        for number, name in enumerate(FILES):
            for place, damage in enumerate(DAMAGES):
                # The sample has every file and every damage; every damage once without the rare tests.
                if TRIES_ALL or (
                    number % len(DAMAGES) == place and (state == "finished") == number % 2
                ):
                    marks = [pytest.mark.rare] if number >= len(DAMAGES) else []
                    id = f"{state}-{name}-{damage.__name__}"
                    yield pytest.param(state, name, damage, id=id, marks=marks)


@pytest.mark.parametrize(("state", "name", "damage"), list(cases()))
def test_a_damaged_file_is_one_line_or_changes_nothing(runs, tmp_path, state, name, damage):
    folder, flags = runs
    run = shutil.copytree(folder / state, tmp_path / "run")
    path = with_step(run, name)
    if path is None:
        pytest.skip("an interrupted run has no such file")
    damage(path, with_step(folder / "other", name))
    try:
        pretrain_here(*flags, f"--output_dir={run}")
    except UserError as error:
        assert "\n" not in str(error) and str(run) in str(error)
    else:
        assert_same(run, folder / "finished")


def test_every_flip_in_a_checkpoint_is_noticed(runs, tmp_path):
    folder, flags = runs
    every = 499 if TRIES_ALL else 2999
    num_rejected = 0
    run = shutil.copytree(folder / "finished", tmp_path / "run")
    expected = load_pretrained(run / "checkpoints" / f"step-{STEPS}").get_weights()
    for suffix in ("index", "data-00000-of-00001"):
        path = run / "checkpoints" / f"step-{STEPS}.{suffix}"
        content = path.read_bytes()
        for place in range(0, len(content), every if suffix != "index" else every // 10):
            damaged = bytearray(content)
            damaged[place] ^= 1 << (place % 8)
            path.write_bytes(damaged)
            try:
                loaded = load_pretrained(run / "checkpoints" / f"step-{STEPS}").get_weights()
            except UserError as error:
                assert re.search("damaged (TF2 )?checkpoint|was changed after", str(error))
                num_rejected += 1
            else:  # a byte of the optimizer's state
                for value, other in zip(loaded, expected, strict=True):
                    np.testing.assert_array_equal(value, other)
        path.write_bytes(content)
    assert num_rejected > 3


def test_the_run_continues_from_the_checkpoint_before_a_damaged_one(runs, tmp_path):
    folder, flags = runs
    run = shutil.copytree(folder / "finished", tmp_path / "run")
    flipped(run / "checkpoints" / f"step-{STEPS}.data-00000-of-00001", None)
    with pytest.raises(UserError, match=rf"before it, .*, delete .*/step-{STEPS}\.\*"):
        pretrain_here(*flags, f"--output_dir={run}")
    for path in (run / "checkpoints").glob(f"step-{STEPS}.*"):
        path.unlink()
    pretrain_here(*flags, f"--output_dir={run}")
    assert_same(run, folder / "finished")


def test_a_checkpoint_of_another_run_is_rejected(runs, tmp_path):
    folder, flags = runs
    run = shutil.copytree(folder / "finished", tmp_path / "run")
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(folder / "other" / "checkpoints", run / "checkpoints")
    with pytest.raises(UserError, match="belongs to another run"):
        pretrain_here(*flags, f"--output_dir={run}")
    shutil.rmtree(run / "checkpoints" / "best")
    with pytest.raises(UserError, match=r"damaged .*belongs to another run"):
        pretrain_here(*flags, f"--output_dir={run}")
    with pytest.raises(UserError, match="belongs to another run"):
        load_pretrained(run / "checkpoints" / f"step-{STEPS}")


def test_a_run_without_a_checkpoint_starts_again_as_if_there_was_none(runs, tmp_path):
    """As if it was killed after its first evaluations, and before its first checkpoint."""
    folder, flags = runs
    run = shutil.copytree(folder / "finished", tmp_path / "run")
    for path in (run / "checkpoints").glob("step-*"):
        path.unlink()
    (run / "metrics.jsonl").write_text('{"step": 1}\n{"st')
    pretrain_here(*flags, f"--output_dir={run}")
    assert_same(run, folder / "finished")


@pytest.mark.parametrize("name", ["metrics.jsonl", "eval_metrics.jsonl"])
def test_an_incomplete_last_line_is_cut(runs, tmp_path, capsys, name):
    folder, flags = runs
    run = shutil.copytree(folder / "interrupted", tmp_path / "run")
    with open(run / name, "a") as file:
        file.write('{"step": 3, "lo')
    pretrain_here(*flags, f"--output_dir={run}")
    assert f"{run / name}: its last line was incomplete and is cut" in capsys.readouterr().out
    assert_same(run, folder / "finished")


def test_damages_of_a_log_are_named_where_checkpoints_have_no_record(runs, tmp_path):
    folder, flags = runs
    run = shutil.copytree(folder / "interrupted", tmp_path / "run")
    for path in run.rglob("step-*.json"):
        path.unlink()
    log = run / "metrics.jsonl"
    content = log.read_text()
    for line in ('{"loss": 1.0}\n', '{"step": \n', "[1]\n"):
        log.write_text(line + content)
        with pytest.raises(UserError, match=f"{log}: line 1: "):
            pretrain_here(*flags, f"--output_dir={run}")
    log.write_text(content + '{"step": 2')
    pretrain_here(*flags, f"--output_dir={run}")
    assert_same(run, folder / "finished")
