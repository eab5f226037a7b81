"""Memory of training: what a run builds can be freed after it."""

import gc
import weakref

from tensorflow.python.framework import ops

from albert_tf.training.step import Trainer
from tests.helpers import pretrain_here


def test_a_finished_run_leaves_neither_variables_nor_graphs(
    records_file, config_file, tmp_path, monkeypatch
):
    kept = []

    def remember(self, *arguments):
        create(self, *arguments)
        kept.extend(weakref.ref(variable) for variable in self.model.trainable_variables)
        kept.append(weakref.ref(self.task))

    create = Trainer.__init__
    monkeypatch.setattr(Trainer, "__init__", remember)
    registered = len(ops.gradient_registry._registry)
    flags = [f"--input_file={records_file}", f"--albert_config_file={config_file}"]
    flags += ["--train_batch_size=6", "--num_train_steps=2", "--num_warmup_steps=1"]
    pretrain_here(*flags, f"--output_dir={tmp_path / 'run'}")
    gc.collect()
    assert kept
    assert len(ops.gradient_registry._registry) == registered
    assert not [variable() for variable in kept if variable() is not None]
