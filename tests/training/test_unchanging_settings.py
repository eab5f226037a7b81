"""No setting that is declared to change no result changes one: the losses and weights of the same steps are equal."""

import numpy as np
import pytest

from albert_tf.data.record_set import find_records
from albert_tf.data_prep.pretraining.run import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.training.settings import RunConfig
from tests.helpers import TINY, eagerly, lines, made_up_text, pretrain_here, train_spm, weights

BATCH, STEPS = 20, 4
# Setting -> flags with another value than in the run that all are compared with.
OTHER = {
    "do_eval": ["--do_eval=false"],
    "eval_batch_size": ["--eval_batch_size=3"],
    "gradient_accumulation_steps": ["--gradient_accumulation_steps=4"],
    # Two devices (conftest.py).
    "distribution_strategy": [
        *("--distribution_strategy=mirrored", "--gradient_accumulation_steps=2"),
    ],
    "recompute_activations": ["--recompute_activations"],
    "jit_compile": ["--jit_compile=on"],
    "log_every_steps": ["--log_every_steps=3"],
    "save_checkpoints_steps": ["--save_checkpoints_steps=1"],
    "keep_checkpoint_max": ["--save_checkpoints_steps=1", "--keep_checkpoint_max=1"],
    "eval_every_steps": ["--eval_every_steps=1"],
    "max_eval_steps": ["--max_eval_steps=1"],
    "stop_after_steps": [f"--stop_after_steps={STEPS + 1}"],
    "deterministic": ["--deterministic"],
}
# These run graphs; the others run operation by operation, which saves the time of tracing.
AS_GRAPHS = {"distribution_strategy", "jit_compile"}
# Places of files and machines, and what is done with the model.
OF_ANOTHER_KIND = {"output_dir", "init_checkpoint", "tpu_name", "do_train"}
OF_ANOTHER_KIND |= {"spm_model_file", "vocab_file", "albert_config_file", "input_file", "eval_file"}


@pytest.fixture(scope="module")
def pretrain(tmp_path_factory):
    """A function that pretrains on packed rows, without dropout; returns the folder of the run."""
    folder = tmp_path_factory.mktemp("unchanging")
    (folder / "text.txt").write_text(made_up_text(120, seed=2))
    text = made_up_text(200, seed=1).splitlines()
    model = train_spm(folder / "spiece.model", text, vocab_size=200)
    sizes = {"max_seq_length": 64, "max_predictions_per_seq": 10, "dupe_factor": 1}
    paths = {"input_file": str(folder / "text.txt"), "output_dir": str(folder / "records")}
    create_pretraining_data(
        PretrainingDataSettings(
            **sizes, **paths, spm_model_file=model, short_seq_prob=1.0, num_workers=1
        )
    )
    records = find_records(str(folder / "records"), "input_file")
    rows = round(BATCH * records.num_records / records.num_examples)
    assert rows < BATCH and rows % 2, rows  # not divisible among the parts
    config = TINY.replace(vocab_size=200, num_hidden_layers=1, max_position_embeddings=64)
    (folder / "config.json").write_text(config.to_json_string())

    def run(name, *flags):
        pretrain_here(
            *(f"--input_file={folder / 'records'}", f"--eval_file={folder / 'records'}"),
            *(f"--albert_config_file={folder / 'config.json'}", f"--train_batch_size={BATCH}"),
            *(f"--num_train_steps={STEPS + 1}", "--num_warmup_steps=2", "--eval_batch_size=8"),
            *("--learning_rate=0.01", "--log_every_steps=1", f"--stop_after_steps={STEPS}"),
            *("--max_eval_steps=3", *flags),
            f"--output_dir={folder / name}",
        )
        return folder / name

    return run


@pytest.fixture(scope="module")
def expected(pretrain):
    with eagerly():
        return pretrain("expected")


@pytest.mark.parametrize("name", OTHER)
def test_a_setting_that_is_to_change_no_result_changes_none(name, pretrain, expected):
    if name in AS_GRAPHS:
        found = pretrain(name, *OTHER[name])
    else:
        with eagerly():
            found = pretrain(name, *OTHER[name])
    logged = {line["step"]: line for line in lines(found / "metrics.jsonl")}
    if max(logged) == STEPS:
        for variable, value in weights(expected).items():
            np.testing.assert_allclose(weights(found)[variable], value, atol=2e-6, err_msg=variable)
    wanted = lines(expected / "metrics.jsonl")
    if len(logged) >= len(wanted):  # with other intervals, lines are means of other steps
        for line in wanted:
            assert logged[line["step"]] == pytest.approx(line, rel=1e-5), line["step"]


def test_every_such_setting_is_tried():
    classes = (RunConfig, PretrainingConfig)
    names = {name for cls in classes for name in cls.names(changes_results=False)}
    assert names == OTHER.keys() | OF_ANOTHER_KIND
