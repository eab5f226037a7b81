"""A new task is one file and its registration: it trains, evaluates and predicts, and the programs know its models."""

import json
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError, convert, load_predictor, predict
from albert_tf.export import export_model
from albert_tf.serving.settings import ModelUseSettings
from albert_tf.tasks import registry
from tests.helpers import ROOT, TINY, WORDS, run_script, sentence, the_line, train_spm

TOY = pathlib.Path(__file__).with_name("toy_task.py")


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory) -> Iterator[pathlib.Path]:
    """The folder of a finished run of the toy task, started as a user starts it; other tests do not know the task."""
    folder, rng = tmp_path_factory.mktemp("toy"), np.random.default_rng(5)
    for name, size in {"train": 21, "eval": 11, "predict": 7}.items():
        lines = [f"{sentence(rng, 1, 9)}\t{sentence(rng, 1, 9)}" for _ in range(size)]
        (folder / name).write_text("\n".join(lines) + "\n")
    # Models that split at white space only cannot be exported.
    spm = train_spm(folder / "spiece.model", [f"{WORDS} ,"], vocab_size=60)
    config = TINY.replace(vocab_size=60, max_position_embeddings=64)
    (folder / "albert_config.json").write_text(config.to_json_string())
    files = [f"--{name}_file={folder / name}" for name in ("train", "eval", "predict")]
    process = run_script(
        f"{TOY.relative_to(ROOT)} --do_predict --preset=paper --num_workers=1",
        *files,
        f"--albert_config_file={folder / 'albert_config.json'}",
        f"--spm_model_file={spm}",
        f"--output_dir={folder / 'run'}",
        PYTHONPATH=str(ROOT),
    )
    assert process.returncode == 0, process.stderr
    yield folder / "run"
    registry._registered.clear()


def test_a_task_in_one_file_trains_evaluates_and_predicts(toy_run):
    results = json.loads((toy_run / "results.json").read_text())
    assert results["best"]["step"] in (3, 6, 9)
    assert results["best"]["value"] == results["eval"]["accuracy"] <= 1
    evaluated = (toy_run / "eval_metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in evaluated] == [3, 6, 9]  # of its preset
    header, *rows = (toy_run / "predictions" / "longer.tsv").read_text().splitlines()
    assert header.split("\t") == ["id", "prediction", "first", "second"] and len(rows) == 7


def test_its_features_are_written_as_records_and_read(toy_run, tmp_path):
    model, common = str(toy_run / "model"), ["--max_seq_length=33", "--num_workers=1"]
    for flags in (
        [f"--write_records={tmp_path / 'records'}"],
        [f"--train_records={tmp_path / 'records'}", f"--output_dir={tmp_path / 'run'}"],
    ):
        flags += ["--do_eval=false", "--num_train_steps=2", f"--init_checkpoint={model}", *common]
        flags += [f"--train_file={toy_run.parent / 'train'}"]
        process = run_script(str(TOY.relative_to(ROOT)), *flags, PYTHONPATH=str(ROOT))
        assert process.returncode == 0, process.stderr
    assert len(list((tmp_path / "records").glob("*.tfrecord"))) == 8
    assert (tmp_path / "run" / "model" / "config.json").exists()


def test_its_model_card_has_its_own_words(toy_run, tmp_path):
    card = (toy_run / "model" / "README.md").read_text()
    assert "a judge of lengths" in card and "It has seen short texts only." in card
    assert "| accuracy |" in card
    settings = convert.ConvertSettings(
        model=str(toy_run / "model"), output_dir=str(tmp_path / "copy"), task_module=str(TOY)
    )
    convert.main(settings)
    copy = (tmp_path / "copy" / "README.md").read_text()
    assert "a judge of lengths" in copy
    old, new = toy_run / "model", tmp_path / "copy"
    assert json.loads((new / "config.json").read_text()) == json.loads(
        (old / "config.json").read_text()
    )
    assert (new / "model.safetensors").read_bytes() == (old / "model.safetensors").read_bytes()


def test_predict_answers_with_the_tasks_own_predictor_once_the_user_names_its_file(toy_run):
    registry._registered.clear()
    with pytest.raises(UserError) as error:
        load_predictor(str(toy_run))
    assert "the task 'longer' of toy_task.py" in str(error.value)
    assert "--task_module" in str(error.value)
    ModelUseSettings(model=str(toy_run), task_module=str(TOY)).register_task()
    predictor = load_predictor(str(toy_run))
    assert predictor.task_settings["max_seq_length"] == 33
    lines = (toy_run.parent / "predict").read_text().splitlines()
    expected = (toy_run / "predictions" / "longer.tsv").read_text().splitlines()[1:]
    answers = list(predict.answers(predictor, lines, lines_at_a_time=3))
    for line, answer, row in zip(lines, answers, expected, strict=True):
        assert answer == {"longer": line.split("\t")[row.split("\t")[1] == "second"]}


def test_an_export_has_the_tasks_own_signature(toy_run, tmp_path):
    path = export_model(str(toy_run), str(tmp_path / "served"), task_module=str(TOY), warmup=False)
    longer = tf.saved_model.load(path).signatures["serving_default"]
    lines = (toy_run.parent / "predict").read_text().splitlines()
    first, second = zip(*(line.split("\t") for line in lines), strict=True)
    exported = longer(text_a=tf.constant(first), text_b=tf.constant(second))["longer"].numpy()
    ModelUseSettings(model=str(toy_run), task_module=str(TOY)).register_task()
    expected = load_predictor(str(toy_run)).predict(lines)
    assert [text.decode() for text in exported] == [answer["longer"] for answer in expected]


def test_a_wrong_task_module_is_one_line(toy_run, tmp_path):
    (tmp_path / "empty.py").write_text("")
    for name, message in (
        ("no.such.module", "cannot be imported"),
        (tmp_path / "empty.py", "has no DEFINITION"),
    ):
        with pytest.raises(UserError) as error:
            registry.register_module(str(name))
        assert str(error.value).startswith(f"--task_module={name}: {message}")
    process = run_script("-m albert_tf.predict", f"--model={toy_run}", "--task_module=none.py")
    assert "--task_module=none.py: no such file" in the_line(process)


def test_every_package_is_a_task_and_registers_without_tensorflow(no_tensorflow):
    folder = ROOT / "albert_tf" / "tasks"
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = {registry.resolve(known.task).__module__ for known in registry.definitions()}
    assert modules >= {f"albert_tf.tasks.{name}.task" for name in packages}
    process = run_script(
        "-c",
        "from albert_tf.tasks import registry; print(len(registry.definitions()))",
        **no_tensorflow,
    )
    assert process.stdout.strip() == str(len(packages)), process.stderr


def test_a_name_of_the_library_cannot_be_taken():
    (race,) = [known for known in registry.definitions() if known.names == ("race",)]
    registry.register(race)  # itself
    with pytest.raises(UserError, match="'race' is a task of the library"):
        registry.register(
            registry.TaskDefinition(
                names=("race",), settings=race.settings, task=race.task, predictors={}
            )
        )


def test_a_model_without_a_known_name_is_used_by_its_class():
    assert registry.find("", "AlbertForSpan").names == ("squad1.1", "squad2.0")
    assert registry.find("race", "AlbertForSequenceClassification").names[-1] == "tsv"
    assert registry.find("someones", "AlbertForMultipleChoice").names == ("race",)
    assert registry.find("someones") is None
