"""A new task is one file and its registration: it trains, evaluates and predicts, and the programs know its models."""

import importlib
import json
import os
import pathlib
import re
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError, convert, load_predictor, predict
from albert_tf.export import export_model
from albert_tf.formats import pretrained
from albert_tf.model import heads
from albert_tf.serving.settings import ModelUseSettings
from albert_tf.tasks import registry
from albert_tf.training.task import Task
from tests.helpers import ROOT, TINY, WORDS, run_script, sentence, the_line, train_spm

FOLDER = pathlib.Path(__file__).parent
TASKS = {"toy_task.py": "longer", "own_head_task.py": "longer_hidden"}


@pytest.fixture(scope="module", params=TASKS)
def module(request) -> str:
    """The file of a user's task: with a head of the library, and with one of its own."""
    return str(FOLDER / request.param)


@pytest.fixture
def registered(toy_run, module) -> None:
    """The task is known, as with --task_module."""
    ModelUseSettings(model=str(toy_run), task_module=module).register_task()


def forget_tasks() -> None:
    for name in ("longer", "longer_hidden"):
        registry.TASKS.pop(name, None)
    heads.MODEL_CLASSES.pop("AlbertForLonger", None)


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory, module) -> Iterator[pathlib.Path]:
    """The folder of a finished run of a task, started as a user starts it; other tests do not know the task."""
    folder = tmp_path_factory.mktemp("toy")
    rng = np.random.default_rng(5)
    for name, size in {"train": 21, "eval": 11, "predict": 7}.items():
        lines = [f"{sentence(rng, 1, 9)}\t{sentence(rng, 1, 9)}" for _ in range(size)]
        (folder / name).write_text("\n".join(lines) + "\n")
    # Models that split at white space only cannot be exported.
    spm = train_spm(folder / "spiece.model", [f"{WORDS} ,"], vocab_size=60)
    config = TINY.replace(vocab_size=60, max_position_embeddings=64)
    (folder / "albert_config.json").write_text(config.to_json_string())
    files = [f"--{name}_file={folder / name}" for name in ("train", "eval", "predict")]
    process = run_script(
        f"{pathlib.Path(module).relative_to(ROOT)} --do_predict --preset=paper",
        *files,
        f"--albert_config_file={folder / 'albert_config.json'}",
        f"--spm_model_file={spm}",
        f"--output_dir={folder / 'run'}",
        PYTHONPATH=str(ROOT),
    )
    assert process.returncode == 0, process.stderr
    yield folder / "run"
    forget_tasks()


@pytest.mark.slow
def test_a_task_in_one_file_trains_evaluates_and_predicts(toy_run):
    results = json.loads((toy_run / "results.json").read_text())
    assert results["best"]["step"] in (3, 6, 9)
    assert results["best"]["value"] == results["eval"]["accuracy"] <= 1
    evaluated = (toy_run / "eval_metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in evaluated] == [3, 6, 9]  # of its preset
    header, *rows = (toy_run / "predictions" / "longer.tsv").read_text().splitlines()
    columns = "id prediction probability probability_first probability_second"
    assert header.split("\t") == columns.split() and len(rows) == 7


def test_its_model_card_has_its_results(toy_run, module, tmp_path):
    card = (toy_run / "model" / "README.md").read_text()
    assert "| accuracy |" in card
    settings = convert.ConvertSettings(
        model=str(toy_run / "model"), output_dir=str(tmp_path / "copy"), task_module=module
    )
    convert.main(settings)
    old = toy_run / "model"
    new = tmp_path / "copy"
    assert json.loads((new / "config.json").read_text()) == json.loads(
        (old / "config.json").read_text()
    )
    assert (new / "model.safetensors").read_bytes() == (old / "model.safetensors").read_bytes()


def test_predict_answers_with_the_tasks_own_predictor_once_the_user_names_its_file(toy_run, module):
    forget_tasks()
    with pytest.raises(UserError) as error:
        load_predictor(str(toy_run))
    name = pathlib.Path(module).name
    own_head = "model_class 'AlbertForLonger'"
    task = f"the task {TASKS[name]!r} of {name}"
    assert (own_head if name == "own_head_task.py" else task) in str(error.value)
    assert "--task_module" in str(error.value)
    ModelUseSettings(model=str(toy_run), task_module=module).register_task()
    predictor = load_predictor(str(toy_run))
    assert predictor.task_settings["max_seq_length"] == 33
    lines = (toy_run.parent / "predict").read_text().splitlines()
    expected = (toy_run / "predictions" / "longer.tsv").read_text().splitlines()[1:]
    answers = list(predict.answers(predictor, lines, lines_at_a_time=3))
    for line, answer, row in zip(lines, answers, expected, strict=True):
        assert answer == {"longer": line.split("\t")[row.split("\t")[1] == "second"]}


@pytest.mark.slow
def test_an_export_has_the_tasks_own_signature(toy_run, module, tmp_path):
    path = export_model(str(toy_run), str(tmp_path / "served"), task_module=module)
    longer = tf.saved_model.load(path).signatures["serving_default"]
    lines = (toy_run.parent / "predict").read_text().splitlines()
    first, second = zip(*(line.split("\t") for line in lines), strict=True)
    exported = longer(text_a=tf.constant(first), text_b=tf.constant(second))["longer"].numpy()
    ModelUseSettings(model=str(toy_run), task_module=module).register_task()
    expected = load_predictor(str(toy_run)).predict(lines)
    assert [text.decode() for text in exported] == [answer["longer"] for answer in expected]
    assert_same_weights(pretrained.read_weights(path), pretrained.read_weights(toy_run))


def assert_same_weights(found, expected) -> None:
    for weights in (found, expected):
        assert weights.model_class == expected.model_class
        assert weights.config.labels == ("first", "second")
        assert weights.config.replace(foreign={}) == expected.config.replace(foreign={})
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in found.arrays.items():
        np.testing.assert_array_equal(array, expected.arrays[name])


@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_a_file_has_the_models_outputs_or_is_an_error_of_one_line(
    toy_run, module, registered, tmp_path, format
):
    def export():
        return export_model(str(toy_run), str(tmp_path), format=format, task_module=module)

    if pathlib.Path(module).name == "toy_task.py":  # its class is one of the library
        assert pathlib.Path(export()).stat().st_size > 1000
        return
    with pytest.raises(UserError) as error:
        export()
    message = str(error.value)
    assert f"--format={format} is for" in message and "AlbertForLonger" in message
    assert "\n" not in message and set(os.listdir(tmp_path)) <= {".lock"}


def test_a_wrong_task_module_is_one_line(toy_run, tmp_path):
    (tmp_path / "empty.py").write_text("")
    for name, message in (
        ("no.such.module", "cannot be imported"),
        (tmp_path / "empty.py", "has no DEFINITION"),
    ):
        with pytest.raises(UserError) as error:
            registry.register_module(str(name))
        assert str(error.value).startswith(f"--task_module={name}: {message}")
    process = run_script(
        "-m albert_tf.command predict", f"--model={toy_run}", "--task_module=none.py"
    )
    assert "--task_module=none.py: no such file" in the_line(process)


def test_every_package_is_a_task_and_registers_without_tensorflow(no_tensorflow):
    folder = ROOT / "albert_tf" / "tasks"
    packages = {path.parent.name for path in folder.glob("*/definition.py")}
    modules = {definition.settings.__module__ for definition in registry.TASKS.values()}
    modules = {name for name in modules if name.startswith("albert_tf.")}
    assert modules == {f"albert_tf.tasks.{name}.settings" for name in packages}
    program = "from albert_tf.tasks import registry; print(len(registry.TASKS))"
    process = run_script("-c", program, **no_tensorflow)
    assert int(process.stdout) >= len(packages), process.stderr


def test_no_task_replaces_a_private_method_of_its_base():
    for definition in registry.TASKS.values():
        name = definition.settings.__module__.replace(".settings", ".task")
        importlib.import_module(name)
    tasks = subclasses_of(Task)
    assert len(tasks) > 9
    for task in tasks:
        for base in task.__mro__[1:]:
            shared = private_names(task) & private_names(base)
            assert not shared, f"{task.__name__} and {base.__name__}"


def subclasses_of(cls: type) -> list[type]:
    subclasses = list(cls.__subclasses__())
    for subclass in cls.__subclasses__():
        subclasses += subclasses_of(subclass)
    return subclasses


def private_names(cls: type) -> set[str]:
    names = {name for name in vars(cls) if re.match("_[a-z]", name)}
    return names - {"_abc_impl"}  # of every class with abstract methods
