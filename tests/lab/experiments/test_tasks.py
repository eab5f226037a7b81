"""The recipes of Tables 9 and 10 at a scale of seconds: pretraining, several runs, the start from MNLI, ensembles."""

import dataclasses
import json
import pathlib
import statistics
from typing import NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from albert_tf.core.errors import UserError
from albert_tf.tasks import registry
from lab.experiments import declarations, training
from lab.experiments.__main__ import ExperimentSettings
from lab.experiments.engine import Engine, declared_of, result_path
from lab.experiments.preparation import Workspace
from lab.experiments.training import Trained
from tests.helpers import (
    NAMES,
    ROOT,
    random_features,
    run_script,
    sentence,
    squad_paragraph,
    the_line,
    write_files,
    write_records,
)
from tests.lab.experiments.test_experiments import run_quietly

pytestmark = pytest.mark.slow  # its fixtures fine-tune on every task

MNLI_COLUMNS = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
    "\tsentence1\tsentence2\tlabel1\tgold_label"
)


def pairs(rng: np.random.Generator, header: str, number: int, labels: list[str]) -> str:
    """A table of pairs of texts; the first word of the second text tells the label."""
    lines = [header]
    for row in range(number):
        label = row % len(labels)
        own = {"index": row, "label": labels[label], "gold_label": labels[label]}
        own["sentence1"] = sentence(rng, 2, 5)
        own["sentence2"] = f"{NAMES.split()[label]} {sentence(rng, 1, 4)}"
        lines.append("\t".join(str(own.get(name, "x")) for name in header.split("\t")))
    return "\n".join(lines) + "\n"


def task_files(rng: np.random.Generator) -> dict[str, str]:
    """MNLI, RTE, SQuAD 1.1 and RACE in their official layouts."""
    found, header = {}, "index\tsentence1\tsentence2\tlabel"
    relations = ["contradiction", "entailment", "neutral"]
    for name, number in (("train", 15), ("dev_matched", 8), ("dev_mismatched", 4)):
        found[f"glue/MNLI/{name}.tsv"] = pairs(rng, MNLI_COLUMNS, number, relations)
    for name, number in (("train", 12), ("dev", 9)):
        found[f"glue/RTE/{name}.tsv"] = pairs(rng, header, number, ["entailment", "not_entailment"])
    for split in ("train", "dev"):
        paragraphs = [squad_paragraph(rng, "1.1", f"{split}-{index}", 12) for index in range(3)]
        squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
        found[f"squad/{split}-v1.1.json"] = json.dumps(squad)
        for number, level in enumerate(("middle", "high")):
            passage = {
                "article": " ".join(sentence(rng, 3, 5) for _ in range(4)),
                "questions": [f"{sentence(rng, 1, 3)} _", sentence(rng, 2, 4)],
                "options": [[sentence(rng, 1, 3) for _ in range(4)] for _ in range(2)],
                "answers": ["A", "C"],
            }
            found[f"race/{split}/{level}/{number}.txt"] = json.dumps(passage)
    return found


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> pathlib.Path:
    """Text of 60 documents, and the files of four tasks."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(11)
    for number in range(60):
        text = " ".join(sentence(rng, 3, 6) for _ in range(10))
        write_files(folder, {f"text/{number}.txt": text + "\n"})
    write_files(folder, task_files(rng))
    return folder


# SQuAD 2.0 has settings and no data; the tables' other tasks have no settings.
SCALE = """
title = "seconds"
seeds = [1]
seconds = 1
texts = { standard = ["text"], additional = ["text"] }
vocabulary = { vocab_size = 60 }
steps_factors = { 8 = 1, 12 = 1.5 }
speed = { num_train_steps = 6, log_every_steps = 2 }

[data]
max_seq_length = 24
max_predictions_per_seq = 4
dupe_factor = 1
record_format = "full"
single_segment = "clean"

[training]
learning_rate = 0.003
train_batch_size = 6
num_train_steps = 2
num_warmup_steps = 1
max_eval_steps = 1

[model]
vocab_size = 60
max_position_embeddings = 32
initializer_range = 0.3

[sizes]
embedding_size = { 128 = 7 }
hidden_size = { 4096 = 12 }
num_attention_heads = { 64 = 3 }
num_hidden_layers = { 12 = 1 }
"""
LENGTHS = {"mnli": 24, "rte": 20, '"squad1.1"': 30, '"squad2.0"': 30, "race": 28}
for name, length in LENGTHS.items():
    SCALE += f"""
[tasks.{name}]
max_seq_length = {length}
num_train_steps = 3
train_batch_size = 5
eval_batch_size = 16
eval_every_steps = 3
learning_rate = 0.02
"""
    SCALE += {'"squad1.1"': "max_query_length = 9\ndoc_stride = 9\n"}.get(name, "")
    SCALE += "max_qa_length = 14\n" * (name == "race")
RUNS = {"table_9": 2, "table_10": 1}


class Recipes(NamedTuple):
    """Tables 9 and 10, run by the engine."""

    engine: Engine
    experiments: dict[str, declarations.Experiment]
    output: str

    @property
    def workspace(self) -> Workspace:
        return self.engine.workspace

    def trained(self, name: str, row: int, **others) -> Trained:
        """A row of a table."""
        experiment = replace(self.experiments[name], **others)
        return Trained(self.workspace, experiment, experiment.rows[row], 1)

    def with_scale(self, **changes) -> "Recipes":
        """The same runs with another scale."""
        own = self.workspace
        workspace = Workspace(replace(own.scale, **changes), own.data_dir, own.work_dir)
        return self._replace(engine=dataclasses.replace(self.engine, workspace=workspace))

    def with_rate(self, task: str, rate: float) -> "Recipes":
        """The same runs with another learning rate of a task."""
        tasks = self.workspace.scale.tasks
        return self.with_scale(tasks={**tasks, task: {**tasks[task], "learning_rate": rate}})

    def measures(self, name: str, row: int) -> dict:
        """What was measured of a row of a table."""
        experiment = self.experiments[name]
        path = result_path(self.engine.results_dir, experiment, "tiny", experiment.rows[row], 1)
        return json.loads(pathlib.Path(path).read_text())["measures"]


def run_all(engine: Engine, experiments: dict[str, declarations.Experiment]) -> str:
    """Runs all rows of some experiments; returns what was printed."""
    return "".join(run_quietly(engine, each, each.rows) for each in experiments.values())


@pytest.fixture(scope="module")
def scale(tmp_path_factory) -> declarations.Scale:
    """The scale of seconds."""
    path = tmp_path_factory.mktemp("declared") / "tiny.toml"
    path.write_text(SCALE)
    return declarations.read_scale(str(path))


@pytest.fixture(scope="module")
def recipes(scale, data_dir, tmp_path_factory) -> Recipes:
    """Both tables' files as they are, with fewer runs."""
    folder = tmp_path_factory.mktemp("work")
    engine = Engine(Workspace(scale, str(data_dir), str(folder / "work")), str(folder / "results"))
    engine = dataclasses.replace(engine, measures=("parameters", "tasks"))
    experiments = {
        name: replace(declarations.read_experiment(name), fine_tuning={"num_runs": runs})
        for name, runs in RUNS.items()
    }
    return Recipes(engine, experiments, run_all(engine, experiments))


def read(folder: str, name: str = "results.json") -> dict:
    return json.loads(pathlib.Path(folder, name).read_text())


TASKS = [("table_9", "mnli"), ("table_9", "rte"), ("table_10", "squad1.1"), ("table_10", "race")]


@pytest.mark.slow
def test_every_task_of_a_row_is_there_or_none(recipes):
    tasks = {"table_9": ["mnli", "rte"], "table_10": ["squad1.1", "squad2.0", "race"]}
    for name, wanted in tasks.items():
        for row in range(3):
            found = recipes.measures(name, row)
            own = [] if row == 2 else ["parameters", "pretraining"]
            assert set(found) == {*own, *(f"task {task}" for task in wanted)}
            without = [measure for measure, value in found.items() if value is None]
            assert without == (["task squad2.0"] if name == "table_10" else [])


@pytest.mark.parametrize("task", ["mnli", "rte"])
def test_a_row_has_the_median_of_its_runs(recipes, task):
    folders = training.runs_of(recipes.trained("table_9", 0), task)
    assert [pathlib.Path(folder).name for folder in folders] == ["seed_1", "seed_2"]
    runs = [read(folder)["eval"] for folder in folders]
    assert runs[0]["loss"] != runs[1]["loss"]
    found = recipes.measures("table_9", 0)[f"task {task}"]
    assert found["runs"] == runs
    for metric in runs[0]:
        assert found[metric] == statistics.median(run[metric] for run in runs)


def test_a_run_starts_from_the_pretrained_row_or_from_the_best_run_on_mnli(recipes):
    for row in (0, 1):
        trained = recipes.trained("table_9", row)
        runs = training.runs_of(trained, "mnli")
        scores = [read(run)["best"]["value"] for run in runs]
        best = runs[scores.index(max(scores))]
        assert training.best_run(trained, "mnli") == best
        starts = {"mnli": trained.run_folder, "rte": best}
        for task, start in starts.items():
            for run in training.runs_of(trained, task):
                assert read(run, "config.json")["run"]["init_checkpoint"] == start
        assert recipes.measures("table_9", row)["task rte"]["initial_task"] == "mnli"
        assert "initial_task" not in recipes.measures("table_9", row)["task mnli"]


@pytest.mark.parametrize(("name", "task"), TASKS)
def test_an_ensemble_is_chosen_from_the_runs_of_both_rows(recipes, name, task):
    trained = recipes.trained(name, 2)
    (folder,) = pathlib.Path(trained.folder, "ensembles").glob(f"{task}-????????")
    results = read(folder)
    both = [training.runs_of(recipes.trained(name, row), task) for row in (0, 1)]
    assert list(results["alone"]) == [*both[0], *both[1]]
    assert len(set(results["alone"])) == 2 * RUNS[name]
    names = {}
    for row, runs in zip(("1M steps", "1.5M steps"), both, strict=True):
        for number, run in enumerate(runs, 1):
            names[run] = f"{row}, seed_{number}" if len(runs) > 1 else row
    found = recipes.measures(name, 2)[f"task {task}"]
    assert found["members"] == [names[run] for run in results["members"]]
    best = {"squad1.1": "f1"}.get(task, "accuracy")
    assert found[best] == results["eval"][best] >= max(results["alone"].values())


def test_a_row_is_trained_once_for_both_tables(recipes):
    runs = pathlib.Path(recipes.workspace.folder, "runs")
    assert len(list(runs.glob("*/seed-1/pretraining/results.json"))) == 2
    for row in (0, 1):
        assert recipes.trained("table_9", row).folder == recipes.trained("table_10", row).folder


def test_results_of_other_settings_of_a_task_are_rejected(recipes):
    experiment = recipes.experiments["table_9"]
    with pytest.raises(UserError, match=r"task rte was made with other settings \(rte-"):
        recipes.with_rate("rte", 0.01).engine.run(experiment, experiment.rows[:1], [1])


def test_a_second_call_runs_nothing(recipes):
    before = {path: path.stat().st_mtime_ns for path in files_of(recipes)}
    output = run_all(recipes.engine, recipes.experiments)
    assert "evaluation at step" in recipes.output and "evaluation at step" not in output
    # Without the JSON files, the numbers come from the folders of the runs.
    anew = dataclasses.replace(recipes.engine, results_dir=recipes.engine.results_dir + "-anew")
    assert "evaluation at step" not in run_all(anew, recipes.experiments)
    for name in recipes.experiments:
        for row in range(3):
            again = Recipes(anew, recipes.experiments, "").measures(name, row)
            assert again == recipes.measures(name, row)
    assert {path: path.stat().st_mtime_ns for path in files_of(recipes)} == before


def files_of(recipes: Recipes) -> list[pathlib.Path]:
    """All that training has written, without the ensembles, which are averaged again."""
    found = pathlib.Path(recipes.workspace.folder, "runs").rglob("*")
    return [
        path
        for path in found
        if path.is_file() and "ensembles" not in path.parts and path.name != ".lock"
    ]


@pytest.mark.slow
def test_a_model_is_evaluated_by_the_command_line(recipes, tmp_path):
    for number, name in enumerate(("none", "nsp", "sop")):
        features = random_features(20, seed=number, vocab_size=60)
        write_records(tmp_path / name / "examples.tfrecord", features)
    model = recipes.trained("table_9", 0).run_folder
    folders = [f"--intrinsic_dir={tmp_path}", f"--probe_dir={tmp_path}"]
    done = run_script("-m lab.experiments", "evaluate", model, *folders, "--max_examples=17")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout[done.stdout.index("{\n") :])
    sets = ("none", "nsp", "sop", "nsp_held_out", "sop_held_out")
    assert found["intrinsic"]["examples"] == dict.fromkeys(sets, 17)
    assert {"masked_lm_accuracy", "sop_own_head", "sop_probe"} <= set(found["intrinsic"])
    assert len(found["layer_changes"]["pieces"]["degrees"]) == 1
    refused = run_script("-m lab.experiments", "evaluate", model, "--intrinsic_dir=none")
    assert "--intrinsic_dir=none: no such file" in the_line(refused)


def wanted(scale: declarations.Scale, task: str) -> dict:
    """The settings of a fine-tuning run of Table 9's or 10's first row."""
    name = "table_9" if task in declarations.read_experiment("table_9").tasks else "table_10"
    experiment = declarations.read_experiment(name)
    trained = Trained(Workspace(scale, "data", "work"), experiment, experiment.rows[0], 1)
    return training.settings_for(trained, task)


@pytest.mark.parametrize("task", ["mnli", "rte", "squad2.0", "race"])
def test_fine_tuning_of_the_papers_scale_is_table_14_on_the_tpu_five_times(task):
    found = wanted(declarations.read_scale("paper"), task)
    place = {"distribution_strategy": "tpu", "tpu_name": "local"}
    own = {"mixed_precision": "mixed_bfloat16", "num_runs": 5}
    expected = {**registry.preset_rows("paper")[task], **place, **own}
    assert {name: found[name] for name in expected} == expected


def test_a_tasks_own_settings_win_over_pretrainings(scale):
    training_settings = {**scale.training, "mixed_precision": "mixed_bfloat16", "tpu_name": "t"}
    own = {**scale.tasks["rte"], "mixed_precision": "float32"}
    scale = replace(scale, training=training_settings, tasks={**scale.tasks, "rte": own})
    mnli, rte = wanted(scale, "mnli"), wanted(scale, "rte")
    assert (mnli["mixed_precision"], mnli["tpu_name"]) == ("mixed_bfloat16", "t")
    assert (rte["mixed_precision"], rte["tpu_name"]) == ("float32", "t")
    # What says how long and how fast pretraining is stays there.
    names = ("train_batch_size", "num_train_steps", "learning_rate")
    assert [mnli[name] for name in names] == [5, 3, 0.02]


def test_another_machine_is_no_other_run(recipes):
    def folders(**changes):
        usual = recipes.workspace.scale.training
        trained = recipes.with_scale(training={**usual, **changes}).trained("table_9", 0)
        return trained.run_folder, training.task_folder(trained, "rte"), trained.declared()

    here = folders()
    assert folders(distribution_strategy="tpu", tpu_name="one") == here
    assert folders(distribution_strategy="mirrored", jit_compile="off") == here
    for changes in ({"mixed_precision": "mixed_bfloat16"}, {"log_every_steps": 3}):
        assert all(one != other for one, other in zip(folders(**changes), here, strict=True))


def test_declared_settings_match_those_of_results_that_are_there():
    """A change of what is declared would refuse every result that was made before."""
    paths = list((ROOT / "lab" / "experiments" / "results").glob("*/*/*-seed1.json"))
    assert paths
    for path in paths:
        found = json.loads(path.read_text())
        experiment = declarations.read_experiment(found["experiment"])
        if experiment.budget == "none":
            continue  # nothing was trained
        if found["declared"]["data"]["record_format"] == "compact":
            continue  # speeds that were measured with a format that is no longer there
        precision = found["declared"]["training"].get("mixed_precision", "")
        asked = ExperimentSettings(
            experiments=experiment.name, scale=found["scale"], mixed_precision=precision
        )
        workspace = Workspace(asked.chosen_scale(), "data", "work")
        trained = Trained(workspace, experiment, experiment.row(found["row"]), 1)
        assert json.loads(json.dumps(declared_of(trained))) == found["declared"], path
