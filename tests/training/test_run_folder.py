"""The folder of a run: which recorded settings may differ when a run is resumed."""

import json

import pytest

from albert_tf.core.errors import UserError
from albert_tf.model.config import SENTENCE_EMBEDDING
from albert_tf.training.run_folder import RunFolder
from albert_tf.training.settings import OptimizerConfig, RunConfig
from tests.helpers import TINY


def settings_of(path, **changes):
    """The groups of a run's settings, with some values changed by name."""
    classes = {"run": RunConfig, "optimizer": OptimizerConfig}
    values = {"output_dir": str(path), **changes}
    groups = {
        group: cls(**{name: value for name, value in values.items() if name in cls.names()})
        for group, cls in classes.items()
    }
    model = {name: value for name, value in changes.items() if name in TINY.names()}
    return {**groups, "model": TINY.replace(**model), "records": {"num_files": 3}}


def open_folder(path, **changes):
    settings = settings_of(path, **changes)
    folder = RunFolder(settings["run"], settings, is_chief=True, data={})
    folder.open()
    return folder


@pytest.fixture
def run(tmp_path):
    """A function that starts a run, gives it a checkpoint, and changes its config.json."""

    def start(change=lambda recorded: None, **settings):
        open_folder(tmp_path, **settings)
        (tmp_path / "checkpoints").mkdir()
        state = 'model_checkpoint_path: "step-1"\nall_model_checkpoint_paths: "step-1"\n'
        (tmp_path / "checkpoints" / "checkpoint").write_text(state)
        (tmp_path / "checkpoints" / "step-1.index").touch()
        config_file = tmp_path / "config.json"
        recorded = json.loads(config_file.read_text())
        change(recorded)
        config_file.write_text(json.dumps(recorded))
        return tmp_path

    return start


def test_settings_that_do_not_change_results_may_differ(run):
    path = run()
    open_folder(path, log_every_steps=7, stop_after_steps=3, jit_compile="off")
    assert json.loads((path / "config.json").read_text())["run"]["log_every_steps"] == 7


def test_a_tuple_among_the_settings_is_the_list_in_the_file(run):
    foreign = {"sentence_embedding": SENTENCE_EMBEDDING}
    assert SENTENCE_EMBEDDING["modules"] == ()
    open_folder(run(foreign=foreign), foreign=foreign)


@pytest.mark.parametrize(
    "changes",
    [{"train_batch_size": 5}, {"seed": 3}, {"num_train_steps": 9000}, {"hidden_dropout_prob": 0.2}],
)
def test_settings_that_change_results_must_not_differ(run, changes):
    path = run()
    with pytest.raises(UserError, match=f"contains a run with {next(iter(changes))}="):
        open_folder(path, **changes)


def test_other_data_is_refused(run):
    path = run(lambda recorded: recorded["records"].update(num_files=4))
    with pytest.raises(UserError, match="contains a run with num_files=4, not 3"):
        open_folder(path)


def test_an_evaluation_needs_the_same_model_only(run):
    path = run(train_batch_size=5, poly_power=2.0)
    before = (path / "config.json").read_bytes()
    open_folder(path, do_train=False, hidden_dropout_prob=0.3)
    assert (path / "config.json").read_bytes() == before
    with pytest.raises(UserError, match="contains a run with hidden_size=20, not 40"):
        open_folder(path, do_train=False, hidden_size=40)


def test_a_run_without_a_checkpoint_starts_again_with_other_settings(tmp_path):
    open_folder(tmp_path)
    open_folder(tmp_path, poly_power=2.0)
    assert json.loads((tmp_path / "config.json").read_text())["optimizer"]["poly_power"] == 2.0


def test_a_setting_that_is_newer_than_a_run_had_its_default(run):
    path = run(lambda recorded: recorded["optimizer"].pop("num_warmup_steps"))
    with pytest.raises(UserError, match="contains a run with num_warmup_steps=3125, not 7"):
        open_folder(path, num_warmup_steps=7)
    open_folder(path)


@pytest.mark.parametrize("unused", ["", 0.0])
def test_a_run_that_did_not_use_a_removed_setting_is_resumed(run, unused):
    path = run(lambda recorded: recorded["optimizer"].update(depth_losses=unused))
    open_folder(path)
    assert "depth_losses" not in json.loads((path / "config.json").read_text())["optimizer"]


@pytest.mark.parametrize("used", ["all", "1,3", 0.3])
def test_a_run_that_used_a_removed_setting_is_evaluated_but_not_resumed(run, used):
    path = run(lambda recorded: recorded["optimizer"].update(depth_losses=used))
    message = f"contains a run with depth_losses={used!r}, which this program no longer has: give"
    with pytest.raises(UserError, match=message):
        open_folder(path)
    open_folder(path, do_train=False)
