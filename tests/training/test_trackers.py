"""--log_to sends the lines of the logs to a tracker, once, under the run that a resumed run continues."""

import importlib.machinery
import json
import sys
import types

import pytest

from albert_tf import UserError
from albert_tf.training.settings import RunConfig
from tests.helpers import eagerly, pretrain_here


class Recorder(types.ModuleType):
    """Both packages in one: remembers runs by their ids, with their settings and lines."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)
        self.runs: dict = {}
        self.current = None

    def init(self, *, name, id, resume, config, reinit):
        assert (resume, reinit) == ("allow", "finish_previous")
        self.current = self.runs.setdefault(id, {"name": name, "settings": config, "lines": {}})
        return self

    def log(self, values, step):
        self.current["lines"].setdefault(step, {}).update(values)

    def end_run(self):
        self.current = None

    def search_runs(self, filter_string, output_format):
        assert output_format == "list"
        found = [id for id in self.runs if filter_string == f"tags.albert_tf_run = '{id}'"]
        return [types.SimpleNamespace(info=types.SimpleNamespace(run_id=id)) for id in found]

    def start_run(self, run_id=None, run_name=None, tags=None):
        assert self.current is None
        new = {"name": run_name, "settings": {}, "lines": {}}
        self.current = (
            self.runs[run_id] if run_id else self.runs.setdefault(tags["albert_tf_run"], new)
        )

    def log_params(self, values):
        self.current["settings"].update(values)

    log_metrics = log


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_a_tracker_gets_the_lines_of_the_logs(
    kind, records_file, config_file, tmp_path, monkeypatch
):
    recorder, folder = Recorder(kind), tmp_path / "mine"
    monkeypatch.setitem(sys.modules, kind, recorder)
    flags = [f"--input_file={records_file}", f"--eval_file={records_file}", f"--log_to={kind}"]
    flags += [f"--albert_config_file={config_file}", f"--output_dir={folder}"]
    flags += ["--train_batch_size=6", "--num_train_steps=4", "--num_warmup_steps=0"]
    flags += ["--log_every_steps=1", "--eval_every_steps=2"]
    with eagerly():
        pretrain_here(*flags, "--stop_after_steps=2")
        pretrain_here(*flags)
    ((run_id, run),) = recorder.runs.items()
    config = json.loads((folder / "config.json").read_text())
    assert (run["name"], run_id) == ("mine", config["run_id"])
    settings = run["settings"]
    rate = (
        settings["optimizer"]["learning_rate"]
        if kind == "wandb"
        else settings["optimizer/learning_rate"]
    )
    assert rate == 0.00176
    expected: dict = {}
    for log, file in (("train", "metrics.jsonl"), ("eval", "eval_metrics.jsonl")):
        for line in map(json.loads, (folder / file).read_text().splitlines()):
            values = {f"{log}/{name}": value for name, value in line.items() if name != "step"}
            expected.setdefault(line["step"], {}).update(values)
    assert run["lines"] == expected and len(expected) == 4


def test_a_tracker_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match="--log_to=wandb needs the package wandb: pip install wandb"
    ):
        RunConfig(output_dir="x", log_to="wandb")
