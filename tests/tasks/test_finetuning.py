"""Fine-tuning from flags to files: every task in every mode, the best checkpoint, and what must change no number."""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError, load_pretrained, save_pretrained
from albert_tf.data.reading import EXAMPLE_WEIGHTS
from albert_tf.model import heads
from albert_tf.tasks.classification import multi_label
from albert_tf.tasks.tagging import entities
from tests import helpers
from tests.helpers import lines

TASKS = ["mrpc", "stsb", "tsv", "labels", "squad1.1", "squad2.0", "race", "tagging"]
MODEL_CLASSES = {
    "squad1.1": heads.AlbertForSpan,
    "squad2.0": heads.AlbertForSpanOrNone,
    "race": heads.AlbertForMultipleChoice,
    "tagging": heads.AlbertForTokenClassification,
}
ALWAYS = {"eval.npz", "predict.npz"}
OF_LABELS = {*ALWAYS, "eval_errors.txt", "predictions.tsv"}
ANSWERS = {
    f"{prefix}{name}.json"
    for prefix in ("", "eval_")
    for name in ("predictions", "nbest_predictions")
}
FILES = {
    "mrpc": {*OF_LABELS, "MRPC.tsv"},
    "stsb": {*OF_LABELS, "STS-B.tsv"},
    "tsv": OF_LABELS,
    "labels": OF_LABELS,
    "race": OF_LABELS,
    "tagging": {*ALWAYS, "predictions.conll", "eval_predictions.conll"},
    "squad1.1": {*ALWAYS, *ANSWERS},
    "squad2.0": {*ALWAYS, *ANSWERS, "null_odds.json", "eval_null_odds.json", "null_threshold.json"},
}


def evaluations(folder: pathlib.Path) -> dict[int, dict]:
    """The evaluations of a run by their step."""
    return {line.pop("step"): line for line in lines(folder / "eval_metrics.jsonl")}


def arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The scores of every example."""
    with np.load(path) as file:
        return dict(file)


def evaluate_here(runner: str, *flags: object) -> dict:
    """`fine_tune_here` of what trains nothing; the runs of `finished` evaluate in graphs."""
    with helpers.eagerly():
        return helpers.fine_tune_here(runner, *flags)


def assert_same_predictions(first: dict, second: dict) -> None:
    """Equal up to rounding; where one was padded further than the other, the rest is no number."""
    assert first.keys() == second.keys()
    for name, values in first.items():
        others = second[name]
        if values.ndim > 1:
            width = min(values.shape[1], others.shape[1])
            for array in (values, others):
                assert not np.isfinite(array[:, width:]).any()
            values = values[:, :width]
            others = others[:, :width]
        both = np.isfinite(values) & np.isfinite(others)
        assert both.any()
        np.testing.assert_allclose(values[both], others[both], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_run_leaves_what_it_promises(task, finished):
    run = finished(task)
    assert [line["step"] for line in lines(run.folder / "metrics.jsonl")] == list(range(1, 13))
    assert list(evaluations(run.folder)) == [4, 8, 12]
    assert run.results.items() <= json.loads((run.folder / "results.json").read_text()).items()
    assert {path.name for path in (run.folder / "predictions").iterdir()} == FILES[task]
    assert "features of " in run.output
    task = "table" if task in ("tsv", "labels") else task
    assert f"  head: a new one for {task}" in run.output
    assert (run.folder / "model" / "spiece.model").exists()
    config = json.loads((run.folder / "config.json").read_text())
    assert config["run"]["train_batch_size"] == 6 and config["model"]["finetuning_task"] == task


@pytest.mark.parametrize("task", TASKS)
def test_the_model_folder_gives_the_predictions(task, finished):
    run = finished(task)
    model = load_pretrained(run.folder / "model")
    assert type(model) is MODEL_CLASSES.get(task, heads.AlbertForSequenceClassification)
    loaded = helpers.make_task(run.runner, *run.flags)
    features = helpers.batch_of(loaded, "eval", range(len(loaded.tables["eval"])))
    found = loaded.predictions(model(features), features)
    found = {name: value.numpy() for name, value in found.items()}
    if task == "squad1.1":  # what stands in the padding is not the same everywhere
        for values in found.values():
            values[features["input_mask"] == 0] = np.nan
    assert_same_predictions(found, arrays(run.folder / "predictions" / "eval.npz"))
    if task == "tsv":
        assert model.config.labels == ("bad", "fine", "good")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["labels", "squad1.1", "squad2.0", "race", "tagging"])
def test_evaluation_does_not_depend_on_the_batch(task, finished, tmp_path):
    run = finished(task)
    flags = [*run.flags, "--eval_batch_size=17", "--do_train=false", "--do_predict=false"]
    flags += [f"--init_checkpoint={run.folder}", f"--output_dir={tmp_path}"]
    results = evaluate_here(run.runner, *flags)
    assert results["eval"] == pytest.approx(run.results["eval"], rel=1e-4, abs=1e-5)
    before = arrays(run.folder / "predictions" / "eval.npz")
    assert_same_predictions(before, arrays(tmp_path / "predictions" / "eval.npz"))
    assert not (tmp_path / "model").exists()


def only_unlabelled(task: str, task_files: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Flags of a task that name nothing but data without labels."""
    files = {"labels": "test.tsv", "squad": "questions.json", "tagging": "test.conll"}
    if (name := task.removesuffix("2.0")) in files:
        return [f"--predict_file={task_files / name / files[name]}"]
    if task == "race":
        shutil.copytree(task_files / "RACE" / "test", folder / "RACE" / "test")
        return [f"--data_dir={folder / 'RACE'}"]
    (folder / "STS-B").mkdir()
    shutil.copy(task_files / "glue" / "STS-B" / "test.tsv", folder / "STS-B")
    return [f"--data_dir={folder}"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["stsb", "labels", "squad2.0", "race", "tagging"])
def test_a_finished_run_predicts_with_its_own_settings_without_any_label(
    task, finished, task_files, tmp_path
):
    run = finished(task)
    folder = shutil.copytree(run.folder, tmp_path / "run")
    for path in FILES[task] - {"null_threshold.json"}:
        (folder / "predictions" / path).unlink()
    flags = only_unlabelled(task, task_files, tmp_path)
    mode = ["--do_train=false", "--do_eval=false", "--do_predict", "--eval_batch_size=6"]
    evaluate_here(run.runner, *flags, *mode, f"--output_dir={folder}")
    found = {path.name for path in (folder / "predictions").iterdir()}
    assert found == {name for name in FILES[task] if not name.startswith("eval")}
    for name in found - {"predict.npz"}:
        before = (run.folder / "predictions" / name).read_text()
        assert (folder / "predictions" / name).read_text() == before, name
    before = arrays(run.folder / "predictions" / "predict.npz")
    assert_same_predictions(before, arrays(folder / "predictions" / "predict.npz"))
    # What the training has written stays.
    for name in ("results.json", "config.json", "metrics.jsonl", "eval_metrics.jsonl"):
        assert (folder / name).read_bytes() == (run.folder / name).read_bytes(), name


def test_a_run_is_evaluated_with_its_own_file_alone(finished, task_files, tmp_path):
    run = finished("tsv")
    own_flags = [flag for flag in run.flags if not flag.startswith("--eval_file=")]
    other = f"--eval_file={task_files / 'tsv' / 'train.tsv'}"
    for training in ([], ["--do_train=false"]):
        with pytest.raises(UserError, match="is evaluated with .*: give another --output_dir"):
            evaluate_here(run.runner, *own_flags, *training, other, f"--output_dir={run.folder}")
    flags = ["--do_train=false", other, f"--init_checkpoint={run.folder}"]
    found = evaluate_here(run.runner, *flags, f"--output_dir={tmp_path}")
    assert found["eval"] != run.results["eval"]
    assert found["data"]["eval"]["file"] == other.partition("=")[2]
    # The same training, without evaluation, keeps what was measured.
    again = evaluate_here(run.runner, *own_flags, "--do_eval=false", f"--output_dir={run.folder}")
    assert again["eval"] == run.results["eval"] and again["last"] == run.results["last"]
    assert again["majority"] == run.results["majority"]
    flags = [*flags[:-1], f"--init_checkpoint={tmp_path}", f"--output_dir={run.folder}"]
    with pytest.raises(UserError, match="--init_checkpoint=.* is not used without training"):
        evaluate_here(run.runner, *flags)


def test_a_classifier_of_transformers_keeps_its_head(finished, tmp_path):
    run = finished("tsv")
    model = shutil.copytree(run.folder / "model", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    others = {key: config[key] for key in config if key not in ("finetuning_task", "albert_tf")}
    (model / "config.json").write_text(json.dumps(others))
    flags = [*run.flags, f"--init_checkpoint={model}", "--do_train=false", "--do_predict=false"]
    found = evaluate_here(run.runner, *flags, f"--output_dir={tmp_path / 'run'}")
    assert found["eval"] == pytest.approx(run.results["eval"], rel=1e-4)


def test_a_model_folder_answers_with_the_threshold_of_its_run(finished, task_files, tmp_path):
    run = finished("squad2.0")
    model = shutil.copytree(run.folder / "model", tmp_path / "model")
    flags = [f"--predict_file={task_files / 'squad' / 'questions.json'}"]
    flags += ["--do_train=false", "--do_eval=false", "--do_predict"]

    def answers(folder: str) -> dict[str, str]:
        start = [f"--init_checkpoint={model}", f"--output_dir={tmp_path / folder}"]
        evaluate_here(run.runner, *flags, *start)
        return json.loads((tmp_path / folder / "predictions" / "predictions.json").read_text())

    assert answers("own") == json.loads((run.folder / "predictions/predictions.json").read_text())
    config = json.loads((model / "config.json").read_text())
    chosen = json.loads((run.folder / "predictions" / "null_threshold.json").read_text())
    assert config["albert_tf"]["task"]["null_threshold"] == chosen["null_threshold"]
    config["albert_tf"]["task"]["null_threshold"] = -1000.0
    (model / "config.json").write_text(json.dumps(config))
    assert set(answers("another").values()) == {""}


def test_training_takes_no_settings_of_a_finished_run(finished):
    run = finished("squad1.1")
    files = [flag for flag in run.flags if "_file=" in flag]
    flags = [*files, "--version=1.1", f"--init_checkpoint={run.folder}", "--max_query_length=9"]
    _, _, config = helpers.fine_tuning_settings(run.runner, *flags, "--output_dir=unused")
    assert config.doc_stride == 128


@pytest.mark.parametrize("task", ["tsv", "labels", "tagging"])
def test_labels_of_a_new_file_win_over_those_of_the_initial_model(task, finished, tmp_path):
    """A file that has some of the model's labels keeps its head; other labels get a new one."""
    run = finished(task)
    flags = [flag for flag in run.flags if "predict" not in flag and "init_checkpoint" not in flag]
    flags.append(f"--init_checkpoint={run.folder}")
    again = helpers.make_task(run.runner, *flags)
    old = again.labels
    assert again.start.weights.model_class == again.model_class.__name__
    assert any(not name.startswith("bert/") for name in again.start.weights.arrays)

    (path,) = (pathlib.Path(flag.partition("=")[2]) for flag in flags if "train_file" in flag)
    name = old[-1].partition("-")[2] or old[-1]
    renamed = tmp_path / path.name
    renamed.write_text(re.sub(rf"\b{name}\b", "Other", path.read_text()))
    flags = [flag for flag in flags if "eval" not in flag]
    task = helpers.make_task(run.runner, *flags, f"--train_file={renamed}", "--do_eval=false")
    assert {*task.labels} - {*old} == {label.replace(name, "Other") for label in old} - {*old}
    assert len(task.labels) == len(old)
    assert all(name.startswith("bert/") for name in task.start.weights.arrays)


@pytest.mark.parametrize("task", TASKS)
def test_all_that_features_are_made_with_belongs_to_the_model(task, finished):
    run = finished(task)
    *_, config = helpers.fine_tuning_settings(run.runner, *run.flags, "--output_dir=unused")
    source = helpers.RUNNERS[run.runner].source(config)
    _, settings = source.feature_function
    names = {field.name for field in dataclasses.fields(settings)} - {"tokenizer"}
    assert names <= {*config.names(of_model="fixed")}
    model = json.loads((run.folder / "model" / "config.json").read_text())["albert_tf"]["task"]
    belonging = {**config.of_model(config.to_dict())}
    # In tokenizer_config.json.
    assert (belonging.pop("do_lower_case"), belonging.pop("keep_accents")) == (True, False)
    assert belonging.items() <= model.items()


def test_a_model_with_fewer_positions_lowers_the_default_length(task_flags, tmp_path):
    for task, name in {"tsv": "classifier", "race": "race"}.items():
        _, flags = task_flags[task]
        flags = [flag for flag in flags if "length" not in flag]
        _, _, config = helpers.fine_tuning_settings(name, *flags, "--output_dir=unused")
        assert config.max_seq_length == 64


def test_the_best_checkpoint_becomes_the_model(finished, tmp_path):
    run = finished("stsb")
    results = run.results
    logged = evaluations(run.folder)
    metric = results["best"]["metric"]
    values = {step: line[metric] for step, line in logged.items()}
    assert results["best"]["step"] == results["step"] == max(values, key=values.get)
    assert results["eval"] == pytest.approx(logged[results["step"]], rel=1e-5)
    assert results["last"] == logged[12]
    # Without its best checkpoint and its model, the run gives what its last one is worth.
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    shutil.rmtree(folder / "checkpoints" / "best")
    shutil.rmtree(folder / "model")
    spm = f"--spm_model_file={run.folder / 'model' / 'spiece.model'}"
    mode = ["--do_train=false", "--do_predict=false", spm]
    again = evaluate_here(run.runner, *run.flags, *mode, f"--output_dir={folder}")
    # A correlation near 0.
    assert again["eval"] == pytest.approx(results["last"], rel=1e-4, abs=5e-5)


@pytest.mark.parametrize("task", ["stsb", "labels", "squad1.1", "squad2.0", "race", "tagging"])
def test_padding_changes_no_loss(task, task_flags):
    made = helpers.make_task(*task_flags[task])
    model = made.build_model(dtype="float32", recompute_activations=False, seed=1)
    found = []
    for length in (made.tables["train"].lengths[:9].max(), 64):
        features = helpers.batch_of(made, "train", range(9), length)
        # No randomness, but what the model gives in training.
        outputs = model(features, training=False)
        losses = made.losses(outputs, features, training=True)
        found.append({name: float(ratio.sum / ratio.count) for name, ratio in losses.items()})
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@pytest.mark.parametrize("task", ["mrpc", "stsb", "labels", "tagging"])
def test_packing_changes_no_loss_and_no_gradient(task, task_flags):
    made = helpers.make_task(*task_flags[task])
    model = helpers.noisy(made.build_model(dtype="float32", recompute_activations=False, seed=1))
    table = made.tables["train"]
    names = made.source.names("train")
    examples = np.arange(33) % len(table)
    longest = int(table.lengths.max())
    batches = [
        table.batch(examples, longest + 3, names),
        table.packed_batch(examples, longest + 7, 5, names),
        table.packed_batch(examples, longest, 1, names),
    ]
    assert len(batches[1]["input_ids"]) < len(examples) < len(batches[2]["input_ids"])
    found = []
    for batch in batches:
        features = {name: tf.constant(value) for name, value in batch.items()}
        with tf.GradientTape() as tape:
            outputs = model(features, training=False)
            sums = [ratio.sum for ratio in made.losses(outputs, features, training=True).values()]
            loss = tf.add_n(sums) / tf.add_n(list(made.loss_counts(features).values()))
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        found.append(
            [float(loss), *(tf.convert_to_tensor(gradient).numpy() for gradient in gradients)]
        )
    for packed in found[1:]:
        for gradient, other in zip(found[0], packed, strict=True):
            np.testing.assert_allclose(other, gradient, rtol=1e-3, atol=2e-6)


def test_random_batches_for_training_are_packed(task_flags):
    task = helpers.make_task(*task_flags["mrpc"])
    context = tf.distribute.InputContext()
    data = task.train_data.training_dataset(8, seed=3, first_step=0, context=context)
    batch = next(iter(data))
    order = np.random.default_rng([3, 0]).permutation(len(task.tables["train"]))
    assert set(batch["example_index"].numpy()) <= set(order)
    ids = batch["input_ids"].numpy()
    places = batch["example_places"].numpy()
    firsts = batch["first_positions"].numpy()
    for place, index in zip(places, batch["example_index"].numpy(), strict=True):
        row, slot = divmod(place, firsts.shape[1])
        expected = task.tables["train"].sequence("input_ids", index)
        found = ids[row, firsts[row, slot] :][: len(expected)]
        np.testing.assert_array_equal(found, expected)
    padded = helpers.make_task(*task_flags["mrpc"], "--gradient_accumulation_steps=2")
    assert "example_places" not in padded.train_data.spec(8)
    assert "example_places" not in task.eval_data.spec(8)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["tsv", "tagging"])
def test_packed_batches_train_as_padded_ones_and_on_two_devices(task, task_flags, tmp_path):
    rates = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob")
    runner, flags = task_flags[task]
    flags = [*flags, *(f"--{rate}=0" for rate in rates), "--log_every_steps=1", "--do_eval=false"]
    flags += ["--do_predict=false", "--num_train_steps=3", "--train_batch_size=12"]
    cases = {
        "packed": [],
        "padded": ["--gradient_accumulation_steps=2"],
        "two": ["--distribution_strategy=mirrored"],
    }
    for name, flags_of_case in cases.items():
        helpers.fine_tune_here(runner, *flags, *flags_of_case, f"--output_dir={tmp_path / name}")
    expected = lines(tmp_path / "packed" / "metrics.jsonl")
    assert len({line["loss"] for line in expected}) == 3
    values = helpers.weights(tmp_path / "packed")
    for name in ("padded", "two"):
        for line, other in zip(expected, lines(tmp_path / name / "metrics.jsonl"), strict=True):
            assert other["loss"] == pytest.approx(line["loss"], rel=1e-4)
            assert other["gradient_norm"] == pytest.approx(line["gradient_norm"], rel=1e-3)
        for variable, value in helpers.weights(tmp_path / name).items():
            np.testing.assert_allclose(value, values[variable], atol=2e-5, err_msg=variable)


def batch_of_labels(task, columns: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    """Features of four examples; the last fills up a batch."""
    weights = np.array([1, 1, 1, 0], np.float32)
    return {"input_ids": tf.ones([4, 5], tf.int32), **columns, EXAMPLE_WEIGHTS: weights}


def in_training(task, features: dict) -> dict:
    """The same features in a training batch of the first three examples."""
    return {name: value[:3] for name, value in features.items() if name != EXAMPLE_WEIGHTS}


def test_the_loss_of_a_score_is_its_squared_error(task_flags):
    task = helpers.make_task(*task_flags["stsb"])
    scores = np.array([[1.5], [4.0], [0.0], [2.0]], np.float32)
    features = batch_of_labels(task, {"label_scores": scores})
    outputs = {"logits": np.array([[1.0], [2.0], [3.0], [7.0]], np.float32)}
    (ratio,) = task.losses(outputs, features, training=False).values()
    assert (float(ratio.sum), float(ratio.count)) == (0.25 + 4.0 + 9.0, 3.0)


def test_the_loss_of_several_labels_by_hand(task_flags):
    task = helpers.make_task(*task_flags["labels"])
    assert task.labels == ("animal", "colour", "mood", "name")
    logits = np.random.default_rng(2).normal(size=(4, 4)).astype(np.float32)
    truths = np.array([[1, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], np.int32)
    features = batch_of_labels(task, {"label_sets": truths})
    losses = np.log1p(np.exp(np.where(truths == 1, -logits, logits)))[:3]
    loss = task.losses({"logits": logits}, features, training=False)["label_loss"]
    assert float(loss.sum) == pytest.approx(losses.sum(), rel=1e-5)
    assert float(loss.count) == 12 == float(task.loss_counts(features)["label_loss"])
    # In training, true labels have weights.
    factors = np.where(truths[:3] == 1, task.class_weights, 1)
    features = in_training(task, features)
    loss = task.losses({"logits": logits[:3]}, features, training=True)["label_loss"]
    assert float(loss.sum) == pytest.approx((factors * losses).sum(), rel=1e-5)
    assert float(loss.count) == 12 == float(task.loss_counts(features)["label_loss"])


def test_weights_of_labels_by_hand(task_flags):
    task = helpers.make_task(*task_flags["tsv"], "--class_weights=balanced")
    assert task.labels == ("bad", "fine", "good")
    logits = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    features = batch_of_labels(task, {"label_ids": np.array([[0], [2], [1], [2]], np.int32)})
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(4), [0, 2, 1, 2]]
    loss = task.losses({"logits": logits}, features, training=False)["label_loss"]
    assert float(loss.sum) == pytest.approx(losses[:3].sum(), rel=1e-5) and float(loss.count) == 3
    features = in_training(task, features)
    loss = task.losses({"logits": logits[:3]}, features, training=True)["label_loss"]
    weights = task.class_weights[[0, 2, 1]]
    assert float(loss.sum) == pytest.approx(losses[:3] @ weights, rel=1e-5)
    assert float(loss.count) == pytest.approx(weights.sum())
    assert float(task.loss_counts(features)["label_loss"]) == float(loss.count)


def test_balanced_weights_are_those_of_the_training_data(task_flags):
    task = helpers.make_task(*task_flags["tsv"], "--class_weights=balanced")
    counts = np.bincount([item.label for item in task.items["train"]])
    np.testing.assert_allclose(task.class_weights, 23 / (3 * counts), rtol=1e-6)
    task = helpers.make_task(*task_flags["labels"])
    counts = np.sum([item.label for item in task.items["train"]], axis=0)
    np.testing.assert_allclose(task.class_weights, (28 - counts) / counts, rtol=1e-6)


def test_several_labels_are_scored_and_given_at_a_half(finished):
    run = finished("labels")
    truths = helpers.make_task(run.runner, *run.flags).tables["eval"].columns["label_sets"]
    probabilities = arrays(run.folder / "predictions" / "eval.npz")["probabilities"]
    expected = multi_label.scores(probabilities, truths)
    assert expected.items() <= run.results["eval"].items()
    assert run.results["best"]["metric"] == "micro_average_precision"
    unlabelled = arrays(run.folder / "predictions" / "predict.npz")["probabilities"]
    rows = (run.folder / "predictions" / "predictions.tsv").read_text().splitlines()
    names = np.array(["animal", "colour", "mood", "name"])
    header = rows[0].split("\t")
    first = header.index("probability_animal")
    assert header[first:] == [f"probability_{name}" for name in names] and len(rows) == 8
    for row, values in zip(rows[1:], unlabelled, strict=True):
        chosen, *shown = row.split("\t")[first - 1 :]
        assert json.loads(chosen) == names[values >= 0.5].tolist()
        assert [float(value) for value in shown] == pytest.approx(values)


def test_the_losses_of_squad_by_hand(task_flags):
    rng = np.random.default_rng(0)
    starts, ends = rng.normal(size=(2, 3, 7)).astype(np.float32)
    features = {
        "input_ids": tf.ones([3, 7], tf.int32),
        "input_mask": np.ones([3, 7], np.int32),
        "start_positions": np.array([[2], [0], [5]], np.int32),
        "end_positions": np.array([[4], [0], [6]], np.int32),
        "is_impossible": np.array([[0], [1], [0]], np.int32),
    }
    log_starts = starts - np.log(np.exp(starts).sum(axis=1, keepdims=True))
    log_ends = ends - np.log(np.exp(ends).sum(axis=1, keepdims=True))
    span = -0.5 * (log_starts[0, 2] + log_starts[1, 0] + log_starts[2, 5])
    span -= 0.5 * (log_ends[0, 4] + log_ends[1, 0] + log_ends[2, 6])
    outputs = {"start_logits": starts, "end_logits": ends}
    losses = helpers.make_task(*task_flags["squad1.1"]).losses(outputs, features, training=True)
    assert list(losses) == ["span_loss"] and float(losses["span_loss"].count) == 3
    assert float(losses["span_loss"].sum) == pytest.approx(span, rel=1e-5)

    scores = np.array([1.5, -0.5, -2.0], np.float32)
    outputs = {"start_log_probs": log_starts, "end_log_probs": log_ends, "cls_logits": scores}
    losses = helpers.make_task(*task_flags["squad2.0"]).losses(outputs, features, training=True)
    # -log of the probability of what is true: possible, impossible, possible.
    answerable = 0.5 * np.sum(np.log1p(np.exp([1.5, 0.5, -2.0])))
    assert float(losses["span_loss"].sum) == pytest.approx(span, rel=1e-5)
    assert float(losses["answerable_loss"].sum) == pytest.approx(answerable, rel=1e-5)
    assert float(losses["answerable_loss"].count) == 3


def test_the_loss_of_tagging_by_hand(task_flags):
    task = helpers.make_task(*task_flags["tagging"])
    logits = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    tags = np.array([[0, 2, 0, 5], [0, 1, 1, 0], [0, 3, 0, 0]], np.int32)
    features = {
        "input_ids": tf.ones([3, 4], tf.int32),
        "tag_numbers": tags,
        EXAMPLE_WEIGHTS: np.array([1, 1, 0], np.float32),
    }
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    expected = -(log_probs[0, 1, 1] + log_probs[0, 3, 4] + log_probs[1, 1, 0] + log_probs[1, 2, 0])
    loss = task.losses({"logits": logits}, features, training=False)["tag_loss"]
    assert float(loss.sum) == pytest.approx(expected, rel=1e-5) and float(loss.count) == 4
    assert float(task.loss_counts(features)["tag_loss"]) == 4


def test_weights_of_tags_by_hand(task_flags):
    task = helpers.make_task(*task_flags["tagging"], "--class_weights=balanced")
    tags = [tag for sentence in task.sentences["train"] for tag in sentence.tags]
    counts = np.bincount(tags, minlength=len(task.labels))
    expected = np.where(counts, len(tags) / len(counts) / np.maximum(counts, 1), 1)
    np.testing.assert_allclose(task.class_weights, expected, rtol=1e-6)

    task.class_weights = np.array([0.5, 2, 3, 5, 7], np.float32)
    logits = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    features = {
        "input_ids": tf.ones([2, 4], tf.int32),
        "tag_numbers": np.array([[0, 2, 0, 5], [0, 1, 1, 0]], np.int32),
    }
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    expected = -(2 * log_probs[0, 1, 1] + 7 * log_probs[0, 3, 4])
    expected -= 0.5 * (log_probs[1, 1, 0] + log_probs[1, 2, 0])
    loss = task.losses({"logits": logits}, features, training=True)["tag_loss"]
    assert float(loss.sum) == pytest.approx(expected, rel=1e-5) and float(loss.count) == 10
    assert float(task.loss_counts(features)["tag_loss"]) == 10
    # Evaluations have no weights, so that losses of runs are comparable.
    weighted = {**features, EXAMPLE_WEIGHTS: np.ones(2, np.float32)}
    loss = task.losses({"logits": logits}, weighted, training=False)["tag_loss"]
    assert float(loss.count) == 4


def test_tags_of_a_run_are_scored_by_entity(finished):
    run = finished("tagging")
    text = (run.folder / "predictions" / "eval_predictions.conll").read_text()
    blocks = text.strip().split("\n\n")
    rows = [[line.split("\t") for line in block.splitlines()] for block in blocks]
    true, predicted = (
        [[row[column] for row in sentence] for sentence in rows] for column in (1, 2)
    )
    scores = entities.scores(true, predicted)
    assert len(rows) == 12 and run.results["eval"]["f1"] > 0
    for name, key in (("precision",) * 2, ("recall",) * 2, ("f1", "f1-score")):
        assert run.results["eval"][name] == scores["micro avg"][key]
    for name, score in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
        for kind in ("PER", "COLOUR"):
            assert run.results["eval"][f"{name}_{kind}"] == scores[kind][score]
    assert run.results["best"]["metric"] == "f1"


@pytest.mark.parametrize("has_sigmoid", [False, True])
def test_a_regression_of_transformers_keeps_its_head_whatever_its_label_is_called(
    finished, tmp_path, has_sigmoid
):
    run = finished("stsb")
    model = shutil.copytree(run.folder / "model", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    others = {key: config[key] for key in config if key not in ("finetuning_task", "albert_tf")}
    others |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    if has_sigmoid:
        others["sentence_transformers"] = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    (model / "config.json").write_text(json.dumps(others))
    flags = [*run.flags, f"--init_checkpoint={model}", "--do_train=false", "--do_predict=false"]
    flags += [f"--output_dir={tmp_path / 'run'}"]
    if has_sigmoid:
        # Its score is not the output of the head, which the losses and the metrics of this task read.
        assert "has no head for stsb" in helpers.error_of(evaluate_here, run.runner, *flags)
        return
    found = evaluate_here(run.runner, *flags)
    assert found["eval"] == pytest.approx(run.results["eval"], rel=1e-4)


@pytest.mark.parametrize("task", ["squad1.1", "squad2.0", "race"])
def test_a_head_of_others_is_used_if_its_outputs_need_no_names(task, finished, tmp_path):
    """Starts, ends and scores of options are the same in every model; its files need not name a task."""
    run = finished(task)
    model = tmp_path / "model"
    shutil.copytree(run.folder / "model", model)
    config_file = model / "config.json"
    if task == "squad2.0":  # transformers has no such class, but the original has
        model = tmp_path / "tf1"
        spm = run.folder / "model" / "spiece.model"
        save_pretrained(load_pretrained(run.folder), model, "tf1", spm_model_file=spm)
        config_file = model / "albert_config.json"
    config = json.loads(config_file.read_text())
    of_ours = ("finetuning_task", "id2label", "label2id", "albert_tf", "_albert_tf")
    others = {key: config[key] for key in config if key not in of_ours}
    config_file.write_text(json.dumps(others))

    flags = [flag for flag in run.flags if "--version" not in flag]  # the data says it
    flags += [f"--init_checkpoint={model}", "--do_train=false", "--do_predict=false"]
    found = evaluate_here(run.runner, *flags, f"--output_dir={tmp_path / 'run'}")
    assert found["eval"] == pytest.approx(run.results["eval"], rel=1e-4, abs=1e-5)
