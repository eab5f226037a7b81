"""Settings of all fine-tuning: the default learning rates."""

import re

import pytest

from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.settings import FEW_STEPS, FineTuningOptimizerConfig, default_learning_rate
from albert_tf.tasks.tagging.task import TaggingTask
from albert_tf.training.settings import OptimizerConfig, RunConfig
from tests.helpers import ROOT, error_of, fine_tuning_settings, make_task

WIDTHS = (64, 128, 384, 512, 768, 1024, 2048, 4096, 6144)


@pytest.mark.parametrize("num_steps", [FEW_STEPS - 1, FEW_STEPS])
@pytest.mark.parametrize("is_random", [False, True])
def test_no_model_has_a_higher_rate_than_a_narrower_one(is_random, num_steps):
    rates = [default_learning_rate(width, num_steps, is_random=is_random) for width in WIDTHS]
    assert rates == sorted(rates, reverse=True) and rates[0] > rates[-1]


def test_random_weights_of_large_models_have_no_lower_rate_than_pretrained_ones():
    for width in (width for width in WIDTHS if width >= 768):
        rate = default_learning_rate(width, FEW_STEPS, is_random=True)
        assert rate >= default_learning_rate(width, FEW_STEPS, is_random=False)


def test_the_guide_has_the_default_rates():
    text = (ROOT / "docs" / "guides" / "finetuning.md").read_text()
    rows = re.findall(
        r"^\| (?:up to )?(\d[\d,]*)(?: and more)? \| (\S+) \| (\S+) \| (\S+) \|", text, re.MULTILINE
    )
    assert len(rows) > 3
    for width, pretrained, few_steps, random in rows:
        width = int(width.replace(",", ""))
        few = FEW_STEPS - 1
        assert float(pretrained) == default_learning_rate(width, FEW_STEPS, is_random=False), width
        assert float(few_steps) == default_learning_rate(width, few, is_random=False), width
        assert float(random) == default_learning_rate(width, FEW_STEPS, is_random=True), width


def _usual_rate(num_steps: int) -> float:
    return 1e-6 * num_steps


def test_a_rate_that_is_given_wins_over_the_default():
    given = FineTuningOptimizerConfig(learning_rate=7e-6)
    assert given.resolved(100, 4, _usual_rate).learning_rate == 7e-6
    assert FineTuningOptimizerConfig().resolved(100, 4, _usual_rate).learning_rate == 75e-6


def test_the_number_of_epochs_is_given_or_the_tasks():
    settings = FineTuningOptimizerConfig()
    assert settings.resolved(100, 4, _usual_rate).num_train_steps == 75
    assert settings.resolved(100, 4, _usual_rate, TaggingTask.usual_epochs).num_train_steps == 250
    given = FineTuningOptimizerConfig(num_train_epochs=2.0)
    assert given.resolved(100, 4, _usual_rate, 10.0).num_train_steps == 50


def test_the_warm_up_of_a_training_is_no_error_in_an_evaluation_with_the_same_flags(finished):
    run = finished("tsv")
    flags = [flag for flag in run.flags if not flag.startswith("--num_train_steps")]
    flags += ["--num_train_epochs=2", f"--init_checkpoint={run.folder}"]
    resolve = make_task(run.runner, *flags, "--do_train=false").resolve
    settings = fine_tuning_settings(
        run.runner, *flags, "--num_warmup_steps=50", "--do_train=false", "--output_dir=unused"
    )
    _, optimizer = resolve(*settings[:2])
    assert optimizer.num_warmup_steps == 0

    resolve = make_task(run.runner, *flags).resolve
    settings = fine_tuning_settings(
        run.runner, *flags, "--num_warmup_steps=50", "--output_dir=unused"
    )
    assert "--num_warmup_steps (50) must end within the" in error_of(resolve, *settings[:2])


@pytest.mark.parametrize(
    ("model", "sharing", "num_groups"),
    [
        ("bert-base", "all", 1),
        ("bert-base", "attention", 1),
        ("bert-base", "none", 1),
        ("bert-base", "", 12),
        ("albert-base-v2", "none", 1),
        ("albert-base-v2", "ffn", 1),
    ],
)
def test_another_sharing_has_no_groups_of_the_one_before(model, sharing, num_groups):
    config = PretrainingConfig(input_file="x", model=model, share_parameters=sharing)
    chosen = config.chosen_config(RunConfig(output_dir="x"), None, None)
    assert chosen.num_hidden_groups == num_groups
    assert not sharing or chosen.share_parameters == sharing


def test_fine_tuning_alone_corrects_the_bias_and_the_preset_does_not(tmp_path):
    """The rules of the original are those of pretraining and of --preset=paper."""
    flags = ["--task_name=MRPC", f"--data_dir={tmp_path}", "--output_dir=o"]
    flags += [f"--init_checkpoint={tmp_path}"]
    assert fine_tuning_settings("classifier", *flags)[1].bias_correction
    assert not fine_tuning_settings("classifier", *flags, "--preset=paper")[1].bias_correction
    assert not OptimizerConfig().bias_correction
