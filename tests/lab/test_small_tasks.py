"""Small tasks: a run from data to table, and its continuation."""

import json

import pytest

from albert_tf import UserError
from albert_tf.tasks import registry
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig
from lab.report import small_tasks_table
from lab.small_tasks.__main__ import SmallTasksSettings, main
from lab.small_tasks.tasks import TASKS


def test_a_task_is_trained_once_and_reported(task_files, tiny_pretrained, tmp_path, capsys):
    values = {
        "model": str(tiny_pretrained),
        "data_dir": str(task_files),
        "output_dir": str(tmp_path),
        "tasks": "MRPC,RTE",
        "num_runs": 1,
        "program_flags": "--num_train_steps=2",
    }
    failed = "1 tasks failed; the first: RTE: --data_dir: has no"
    with pytest.raises(UserError, match=failed):
        main(SmallTasksSettings(**values))
    (command,) = [line for line in capsys.readouterr().out.split("\n") if line.startswith("$")]
    assert "--max_seq_length=64" in command  # the model has no more positions
    (run,) = json.loads((tmp_path / "results.json").read_text())["tasks"]["MRPC"]["model"]
    assert run["seed"] == 1 and 0 <= run["eval"]["accuracy"] <= 100
    assert "| MRPC | accuracy, f1 |" in (tmp_path / "table.md").read_text()
    with pytest.raises(UserError, match=failed):
        main(SmallTasksSettings(**values))
    assert "$" not in capsys.readouterr().out  # nothing is run again


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_programs_know_the_flags_of_a_task(task):
    names = {"classifier": "tsv", "tagger": "tagging", "squad": "squad1.1", "race": "race"}
    definition = registry.find(names[task.program.removeprefix("run_").removesuffix(".py")])
    classes = (definition.settings, FineTuningRunConfig, FineTuningOptimizerConfig)
    assert {*task.flags, *task.shares} <= {field for cls in classes for field in cls.names()}


def test_several_runs_are_shown_as_median_and_range():
    runs = [{"seed": n, "eval": {"accuracy": n}} for n in (10, 40, 20)]
    result = {"metrics": ["accuracy"], "model": runs}
    assert small_tasks_table({"X": result})[2] == "| X | accuracy |  | 20.0 (10.0 to 40.0) | 3 |"
