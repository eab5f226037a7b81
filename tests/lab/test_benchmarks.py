"""The benchmark measures the step of training and goes on after failures; no time is asserted."""

import json
import pathlib

import numpy as np
import pytest

from albert_tf import UserError, load_pretrained
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.settings import OptimizerConfig, RunConfig
from lab.benchmarks import measure, run, training_step
from lab.benchmarks.measure import BenchSettings
from lab.benchmarks.training_step import Step
from tests.helpers import BATCH, TINY, pretrain_here

SIZES = {name: value for name, value in TINY.to_dict().items() if isinstance(value, int)}


@pytest.fixture
def settings(tmp_path, tiny_pretrained) -> BenchSettings:
    """A quick run of the fastest measurement into a temporary folder."""
    (tmp_path / "text.txt").write_text("anna met bert .\n" * 9)
    return BenchSettings(
        text_file=str(tmp_path / "text.txt"),
        spm_model_file=str(tiny_pretrained / "spiece.model"),
        quick=True,
        only="sentencepiece",
        output_dir=str(tmp_path / "results"),
        work_dir=str(tmp_path / "work"),
    )


def test_a_measurement_in_its_own_process_and_results_that_are_taken_up(settings, capsys):
    run.main(settings)
    folder = pathlib.Path(settings.output_dir)
    measured = json.loads((folder / "results.json").read_text())["measurements"]
    assert measured["sentencepiece"]["status"] == "done"
    assert "| `sentencepiece` | " in (folder / "table.md").read_text()
    with pytest.raises(UserError, match="holds results; continue them with --resume"):
        run.main(settings)
    capsys.readouterr()
    run.main(BenchSettings(**{**settings.to_dict(), "resume": True}))
    assert "sentencepiece" not in capsys.readouterr().out  # it is not made again
    failed = measure.in_process("no_such_measurement", settings, 60)
    assert failed["status"] == "failed" and failed["reason"] == "KeyError: 'no_such_measurement'"


def test_operations_of_a_step_by_hand():
    step = Step("ours", batch=6, length=11, changes=tuple(SIZES.items()))
    # B 6, L 11, P 2 (15 % of 11), E 7, D 20, F 19, V 101, 3 layers.
    layer = 4 * 20 * 20 + 2 * 20 * 19 + 2 * 11 * 20
    products = 6 * 11 * (3 * layer + 7 * 20) + 6 * 2 * (20 * 7 + 7 * 101) + 6 * (20 * 20 + 20 * 2)
    assert step.flops == 6 * products


def test_the_step_that_is_timed_is_the_one_of_training(records_file, config_file, tmp_path):
    settings = {"learning_rate": 0.01, "num_warmup_steps": 0, "num_train_steps": 2}
    common = {"train_batch_size": BATCH, "do_eval": False, "seed": 3}
    flags = {**settings, **common, "input_file": records_file, "albert_config_file": config_file}
    pretrain_here(
        *(f"--{name}={value}" for name, value in flags.items()), f"--output_dir={tmp_path / 'run'}"
    )
    config = RunConfig(output_dir=str(tmp_path / "unused"), **common)
    pretraining = PretrainingConfig(
        input_file=str(records_file), albert_config_file=str(config_file)
    )
    trainer = training_step.make_trainer(
        lambda: PretrainingTask(pretraining, config), config, OptimizerConfig(**settings)
    )
    import tensorflow as tf

    for _ in range(2):
        trainer.train(tf.constant(1))
    trained = load_pretrained(str(tmp_path / "run" / "model")).named_variables()
    for name, variable in trainer.model.named_variables().items():
        np.testing.assert_allclose(variable, trained[name], rtol=1e-5, atol=1e-7, err_msg=name)
