"""Fine-tuning with --teacher: half of the loss is the divergence from a finished model's probabilities."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax

from albert_tf import load_pretrained, save_pretrained
from albert_tf.training.losses import divergence
from tests.helpers import batch_of, error_of, fine_tune_here, make_task

pytestmark = pytest.mark.usefixtures("eager")


def test_divergence_equals_that_of_numpy():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(5, 3))
    teacher_logits = rng.normal(size=(5, 3))
    weights = rng.random(5)
    found = divergence(*map(tf.constant, (logits, teacher_logits, weights.astype(np.float32))), 2.0)
    ours = log_softmax(logits / 2, axis=1)
    theirs = log_softmax(teacher_logits / 2, axis=1)
    expected = 4 * (np.exp(theirs) * (theirs - ours)).sum(axis=1) @ weights
    assert float(found.sum) == pytest.approx(expected, rel=1e-5)
    assert float(found.count) == pytest.approx(weights.sum(), rel=1e-5)
    assert float(divergence(logits, logits, weights.astype(np.float32), 3.0).sum) < 1e-5


@pytest.mark.parametrize(
    ("name", "output", "label"),
    [
        ("mrpc", "logits", "label_ids"),
        ("race", "logits", "label_ids"),
        ("squad1.1", "start_logits", "start_positions"),
        ("squad2.0", "end_log_probs", "end_positions"),
        ("tagging", "logits", "tag_numbers"),
    ],
)
def test_half_of_the_loss_is_the_divergence(name, output, label, task_flags, finished):
    runner, flags = task_flags[name]
    teacher = str(finished(name).folder / "model")
    alone, taught = (make_task(runner, *flags, *more) for more in ([], [f"--teacher={teacher}"]))
    options = {"dtype": "float32", "recompute_activations": False, "seed": 1}
    model = alone.build_model(**options)
    taught.build_model(**options)
    features = batch_of(alone, "train", [0, 2, 3])
    outputs = model(features, training=True, seed=tf.constant([1, 2]))
    in_training = {**features, **taught.targets(features)}
    without_teacher = alone.losses(outputs, features, training=True)
    found = taught.losses(outputs, in_training, training=True)
    key = next(iter(without_teacher))
    assert float(found[key].count) == float(without_teacher[key].count)
    theirs = load_pretrained(teacher)(features)
    assert float(np.abs(theirs[output] - outputs[output]).max()) > 0  # it was trained
    assert float(found[key].sum) != pytest.approx(float(without_teacher[key].sum), rel=1e-3)
    # A model that gives its teacher's outputs has half of its own loss.
    without_teacher = alone.losses(theirs, features, training=True)
    found = taught.losses(theirs, in_training, training=True)
    assert float(found[key].sum) == pytest.approx(0.5 * float(without_teacher[key].sum), rel=1e-3)
    evaluated = {**features, "example_weights": tf.ones(3)}
    pair = taught.losses(theirs, evaluated, training=False)[key]
    assert float(pair.sum) == pytest.approx(float(without_teacher[key].sum), rel=1e-4)


@pytest.mark.slow
def test_a_student_is_nearer_to_its_teacher(task_flags, finished, tmp_path):
    runner, flags = task_flags["tsv"]
    teacher = finished("tsv").folder
    expected = np.load(teacher / "predictions" / "eval.npz")["probabilities"]
    distances = {}
    for name, more in {"alone": [], "taught": [f"--teacher={teacher}"]}.items():
        # The teacher had 12 steps, so it is less sure than a model that is trained alone for 60.
        more = [*more, "--seed=7", "--num_train_steps=60", "--eval_every_steps=60"]
        fine_tune_here(runner, *flags, *more, f"--output_dir={tmp_path / name}")
        found = np.load(tmp_path / name / "predictions" / "eval.npz")["probabilities"]
        distances[name] = np.abs(found - expected).mean()
    assert distances["taught"] < 0.5 * distances["alone"]


def test_a_teacher_of_something_else_is_rejected(task_flags, finished):
    runner, flags = task_flags["tsv"]
    message = error_of(make_task, runner, *flags, f"--teacher={finished('mrpc').folder}")
    assert "--teacher=" in message and "expected AlbertForSequenceClassification with" in message
    runner, flags = task_flags["stsb"]
    message = error_of(make_task, runner, *flags, f"--teacher={finished('mrpc').folder}")
    assert "--teacher is for tasks with one of several labels" in message


def test_a_teacher_of_other_text_or_of_shorter_text_is_rejected(task_flags, finished, tmp_path):
    runner, flags = task_flags["mrpc"]
    shutil.copytree(finished("mrpc").folder / "model", tmp_path / "teacher")
    path = tmp_path / "teacher" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": False}))
    message = error_of(make_task, runner, *flags, f"--teacher={tmp_path / 'teacher'}")
    assert "--do_lower_case is true, but the model in" in message and "teacher" in message
    short = load_pretrained(finished("mrpc").folder)
    model = type(short)(short.config.replace(max_position_embeddings=32))
    save_pretrained(
        model, tmp_path / "shorter", spm_model_file=tmp_path / "teacher" / "spiece.model"
    )
    message = error_of(make_task, runner, *flags, f"--teacher={tmp_path / 'shorter'}")
    assert "has 32 positions, fewer than --max_seq_length" in message
