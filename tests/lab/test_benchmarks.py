"""The benchmark measures the step of training and goes on after failures; no time is asserted."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import load_pretrained
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.settings import OptimizerConfig, RunConfig
from lab.benchmarks import training_step
from tests.helpers import BATCH, pretrain_here


@pytest.mark.slow
def test_the_step_that_is_timed_is_the_one_of_training(records_file, config_file, tmp_path):
    settings = {"learning_rate": 0.01, "num_warmup_steps": 0, "num_train_steps": 2}
    common = {"train_batch_size": BATCH, "do_eval": False, "seed": 3}
    paths = {"input_file": str(records_file), "albert_config_file": str(config_file)}
    flags = [f"--{name}={value}" for name, value in {**settings, **common, **paths}.items()]
    pretrain_here(*flags, f"--output_dir={tmp_path / 'run'}")
    config = RunConfig(output_dir=str(tmp_path / "unused"), **common)
    trainer = training_step.make_trainer(
        lambda: PretrainingTask(PretrainingConfig(**paths), config),
        config,
        OptimizerConfig(**settings),
    )
    for _ in range(2):
        trainer.train(tf.constant(1))
    trained = load_pretrained(str(tmp_path / "run" / "model")).named_variables()
    for name, variable in trainer.model.named_variables().items():
        np.testing.assert_allclose(variable, trained[name], rtol=1e-5, atol=1e-7, err_msg=name)
