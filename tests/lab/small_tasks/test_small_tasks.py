"""Small tasks: a run from data to table, its continuation, the data that is made, and the baselines."""

import json
import pathlib

import pytest

from albert_tf import UserError
from albert_tf.tasks import registry
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig
from lab.small_tasks import baselines, data, report
from lab.small_tasks.__main__ import SmallTasksSettings, main
from lab.small_tasks.tasks import TASKS


def read(path):
    return pathlib.Path(path).read_text()


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
    result = json.loads((tmp_path / "results.json").read_text())["tasks"]["MRPC"]
    (run,) = result["model"]
    assert run["seed"] == 1 and 0 <= run["eval"]["accuracy"] <= 100
    assert set(result["baselines"]) == {"majority class", "linear model"}
    assert "| MRPC | accuracy, f1 |" in (tmp_path / "table.md").read_text()
    with pytest.raises(UserError, match=failed):
        main(SmallTasksSettings(**values))
    assert "$" not in capsys.readouterr().out  # nothing is run again
    with pytest.raises(UserError, match="MRPC: .* has runs with other flags"):
        main(SmallTasksSettings(**{**values, "tasks": "MRPC", "train_batch_size": 5}))


def test_values_for_all_tasks_and_for_one():
    given = {"data_dir": ".", "output_dir": "x", "tasks": "MRPC,WNUT,RACE"}
    settings = SmallTasksSettings(**given, learning_rate="1e-4,RACE=2e-4")
    assert settings.value("learning_rate", "MRPC", 0.0) == "1e-4"
    assert settings.value("learning_rate", "RACE", 0.0) == "2e-4"
    assert settings.value("learning_rate", "WNUT", 5e-3, for_all=False) == "0.005"
    assert settings.value("optimizer", "MRPC", "") == ""
    with pytest.raises(UserError, match="--learning_rate has a value for 'SST-2'"):
        SmallTasksSettings(**given, learning_rate="SST-2=1e-4")
    with pytest.raises(UserError, match="--max_seq_length must have whole numbers, got 'x'"):
        SmallTasksSettings(**given, max_seq_length="64,RACE=x")
    with pytest.raises(UserError, match="--tasks names 'MRCP'"):
        SmallTasksSettings(**{**given, "tasks": "MRPC,MRCP"})


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_programs_know_the_flags_of_a_task(task):
    names = {"classifier": "tsv", "tagger": "tagging", "squad": "squad1.1", "race": "race"}
    definition = registry.find(names[task.program.removeprefix("run_").removesuffix(".py")])
    classes = (definition.settings, FineTuningRunConfig, FineTuningOptimizerConfig)
    assert {*task.flags, *task.shares} <= {field for cls in classes for field in cls.names()}


def test_several_runs_are_shown_as_median_and_range():
    runs = [{"seed": n, "eval": {"accuracy": n}} for n in (10, 40, 20)]
    runs[0]["collapsed"] = "one class"
    baseline = {"linear model, a": {"accuracy": 3}, "linear model, b": {"accuracy": 7}}
    result = {"metrics": ["accuracy"], "baselines": baseline, "model": runs}
    assert report.results_table({"X": result})[2] == (
        "| X | accuracy | 7.0 | 20.0 (10.0 to 40.0) (1 of 3 collapsed) | 3 |"
    )


def test_squad_is_split_by_article_only_without_a_training_file(tmp_path):
    (tmp_path / "squad").mkdir()
    dev, train = (tmp_path / "squad" / f"{name}-v1.1.json" for name in ("dev", "train"))
    dev.write_text(json.dumps({"data": [{"title": str(n)} for n in range(48)]}))
    files = data.squad(tmp_path, tmp_path / "made")
    titles = [
        [article["title"] for article in json.loads(read(files[name]))["data"]]
        for name in ("train_file", "eval_file")
    ]
    assert titles == [[str(n) for n in range(40)], [str(n) for n in range(40, 48)]]
    train.write_text("{}")
    files = data.squad(tmp_path, tmp_path / "made")
    assert files == {"train_file": str(train), "eval_file": str(dev)}


def write(path, header, rows):
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def test_baselines_of_texts_find_words_that_decide(tmp_path):
    rows = ["good day\tyes", "bad day\tno", "good night\tyes"] * 5
    flags = {"task_name": "tsv", "text_columns": "text", "label_column": "label"}
    flags["train_file"] = write(tmp_path / "train.tsv", "text\tlabel", rows)
    flags["eval_file"] = write(tmp_path / "dev.tsv", "text\tlabel", ["good\tyes", "bad\tno"])
    assert baselines.majority_class(flags)["majority class"]["accuracy"] == 0.5
    assert baselines.linear_on_texts(flags)["linear model"]["accuracy"] == 1.0
