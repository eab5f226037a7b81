"""No setting that is declared to change no result changes one: the losses and weights of the same steps are equal."""

import contextlib

import numpy as np
import pytest

from albert_tf.data.record_set import find_records
from albert_tf.data_prep.pretraining.make_records import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.registry import TASKS
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.training.settings import RunConfig
from tests import helpers

BATCH = 20
STEPS = 4
# Flags with other values than in the run that all are compared with.
OTHER = (
    "--do_eval=false --recompute_activations --gradient_accumulation_steps=4 --deterministic",
    "--eval_batch_size=3 --save_checkpoints_steps=1 --keep_checkpoint_max=1 --eval_every_steps=1"
    " --max_eval_steps=1 --log_every_steps=3 --early_stopping_patience=9",
    f"--stop_after_steps={STEPS + 1}",
    # Two devices (conftest.py), which wait for nobody.
    "--distribution_strategy=mirrored --gradient_accumulation_steps=2 --worker_timeout_seconds=9",
    "--jit_compile=on",
)
AS_GRAPHS = OTHER[-2:]  # the others run operation by operation, which saves the time of tracing
OTHER_FINE_TUNING = (
    "--do_predict --predictions_file=FOLDER/answers.json --n_best_size=3 --null_threshold=1.5",
    "--num_runs=2",
)
# Places of files and machines, and what is done with the model.
OF_ANOTHER_KIND = {"output_dir", "init_checkpoint", "tpu_name", "do_train"}
OF_ANOTHER_KIND |= {"spm_model_file", "vocab_file", "albert_config_file", "input_file", "eval_file"}

FILES_OF_FINE_TUNING = {"train_file", "predict_file", "corpus_file", "data_dir"}


@pytest.fixture(scope="module")
def pretrain(tmp_path_factory):
    """A function that pretrains on packed rows, without dropout; returns the folder of the run."""
    folder = tmp_path_factory.mktemp("unchanging")
    (folder / "text.txt").write_text(helpers.made_up_text(120, seed=2))
    text = helpers.made_up_text(200, seed=1).splitlines()
    model = helpers.train_spm(folder / "spiece.model", text, vocab_size=200)
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
    config = helpers.TINY.replace(vocab_size=200, num_hidden_layers=1, max_position_embeddings=64)
    (folder / "config.json").write_text(config.to_json_string())

    def run(name, *flags):
        helpers.pretrain_here(
            f"--input_file={folder / 'records'}",
            f"--eval_file={folder / 'records'}",
            f"--albert_config_file={folder / 'config.json'}",
            f"--train_batch_size={BATCH}",
            f"--num_train_steps={STEPS + 1}",
            "--num_warmup_steps=2",
            "--eval_batch_size=8",
            "--learning_rate=0.01",
            "--log_every_steps=1",
            f"--stop_after_steps={STEPS}",
            "--max_eval_steps=3",
            *flags,
            f"--output_dir={folder / name}",
        )
        return folder / name

    return run


@pytest.fixture(scope="module")
def expected(pretrain):
    with helpers.eagerly():
        return pretrain("expected")


def assert_same_steps(found, expected):
    """Checks logs and weights; with other intervals, the lines of a log are means of other steps."""
    logged = {line["step"]: line for line in helpers.lines(found / "metrics.jsonl")}
    expected_lines = helpers.lines(expected / "metrics.jsonl")
    if max(logged) == expected_lines[-1]["step"]:
        for variable, value in helpers.weights(expected).items():
            np.testing.assert_allclose(
                helpers.weights(found)[variable], value, atol=2e-6, err_msg=variable
            )
    if len(logged) >= len(expected_lines):
        for line in expected_lines:
            assert logged[line["step"]] == pytest.approx(line, rel=1e-5), line["step"]


@pytest.mark.parametrize("flags", OTHER)
def test_settings_that_are_to_change_no_result_change_none(flags, pretrain, expected):
    with contextlib.nullcontext() if flags in AS_GRAPHS else helpers.eagerly():
        assert_same_steps(pretrain(str(OTHER.index(flags)), *flags.split()), expected)


@pytest.fixture(scope="module")
def fine_tune(task_flags, tmp_path_factory):
    """A function that fine-tunes on SQuAD 2.0; returns the folder of the run."""
    folder = tmp_path_factory.mktemp("unchanging")
    runner, flags = task_flags["squad2.0"]
    short = ["--num_train_steps=3", "--eval_every_steps=3", "--hidden_dropout_prob=0.1"]

    def run(name, *more):
        more = [flag.replace("FOLDER", str(folder)) for flag in more]
        with helpers.eagerly():
            helpers.fine_tune_here(runner, *flags, *short, *more, f"--output_dir={folder / name}")
        first = folder / name / "seed_12345"
        return first if first.exists() else folder / name

    return run


@pytest.fixture(scope="module")
def fine_tuned(fine_tune):
    return fine_tune("expected")


@pytest.mark.parametrize("flags", OTHER_FINE_TUNING)
def test_nor_do_those_of_fine_tuning(flags, fine_tune, fine_tuned):
    name = str(OTHER_FINE_TUNING.index(flags))
    assert_same_steps(fine_tune(name, *flags.split()), fine_tuned)


def test_every_such_setting_is_tried():
    def declared(*classes):
        return {name for cls in classes for name in cls.names(changes_results=False)}

    tried, tried_in_fine_tuning = (
        {word[2:].partition("=")[0] for flags in groups for word in flags.split()}
        for groups in (OTHER, OTHER_FINE_TUNING)
    )
    assert declared(RunConfig, PretrainingConfig) == tried | OF_ANOTHER_KIND
    tasks = {definition.settings for definition in TASKS.values()} - {PretrainingConfig}
    own = declared(FineTuningRunConfig, *tasks) - tried - OF_ANOTHER_KIND
    assert own == tried_in_fine_tuning | FILES_OF_FINE_TUNING | {"preset"}
