"""What a student learns: losses against NumPy, padding, resume, and that a student approaches its teacher."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import load_pretrained, save_pretrained
from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.tasks.distillation.settings import (
    DistillationConfig,
    DistillationOptimizerConfig,
    DistillationRunConfig,
)
from albert_tf.tasks.distillation.task import DistillationTask, matched_layers
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training import loop
from tests.helpers import WORDS, error_of, weights

CLASSES = (DistillationRunConfig, DistillationOptimizerConfig, DistillationConfig)


@pytest.fixture(scope="module")
def models(tiny_pretrained, tmp_path_factory):
    """A teacher of four layers, a student of two, and a file of texts."""
    folder = tmp_path_factory.mktemp("distillation")
    vocabulary = tiny_pretrained / "spiece.model"
    config = load_pretrained(tiny_pretrained).config
    teacher = AlbertForPreTraining(
        config.replace(num_hidden_layers=4, share_parameters="none"), seed=3
    )
    save_pretrained(teacher, folder / "teacher", spm_model_file=vocabulary)
    student = AlbertForPreTraining(config.replace(num_hidden_layers=2), seed=5)
    save_pretrained(student, folder / "student", spm_model_file=vocabulary)
    narrow = AlbertForPreTraining(config.replace(hidden_size=12, num_hidden_layers=2), seed=6)
    save_pretrained(narrow, folder / "narrow", spm_model_file=vocabulary)
    rng = np.random.default_rng(0)
    words = WORDS.split()
    texts = [" ".join(rng.choice(words, rng.integers(3, 15))) for _ in range(150)]
    (folder / "text.txt").write_text("\n".join(texts) + "\n")
    (folder / "held_out.txt.gz").write_bytes(gzip.compress("\n".join(texts[:20]).encode()))
    return folder


def words_of(models, output_dir, *changes, student="student"):
    return [
        "distill",
        f"--teacher={models / 'teacher'}",
        f"--init_checkpoint={models / student}",
        f"--input_file={models / 'text.txt'}",
        f"--eval_file={models / 'held_out.txt.gz'}",
        f"--output_dir={output_dir}",
        "--max_seq_length=16",
        "--train_batch_size=10",
        *changes,
    ]


def distill(*arguments, **options):
    run, optimizer, distillation = flags.parse(CLASSES, words_of(*arguments, **options))
    return loop.run(lambda: DistillationTask(distillation, run), run, optimizer)


def task_of(*arguments, **options):
    run, _, distillation = flags.parse(CLASSES, words_of(*arguments, **options))
    return DistillationTask(distillation, run)


def outputs_of(task, length, examples=(2, 5, 11)):
    model = task.build_model(dtype="float32", recompute_activations=False, seed=0)
    features = task.train_data.table.batch(np.array(examples), length, ["input_ids"])
    features = {name: tf.constant(value) for name, value in features.items()}
    return model(features), features


def test_unknown_and_cut_texts_are_said_once(models, tmp_path, capsys):
    chinese = tmp_path / "chinese.txt"
    chinese.write_text("送餐 很 快\n" * 5 + "anna saw " * 40 + "\n")
    task_of(models, "unused", f"--input_file={chinese}", f"--eval_file={chinese}")
    error = capsys.readouterr().err
    assert error.count("does not know") == 1
    assert "--input_file: 6 texts, 1 of them (17 %) cut at --max_seq_length=16" in error
    task_of(models, "unused", "--max_seq_length=64")
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("student", "teacher", "expected"),
    [
        (3, 12, [0, 4, 8, 12]),
        (6, 6, [0, 1, 2, 3, 4, 5, 6]),
        (1, 5, [0, 5]),
        (6, 3, [0, 1, 1, 2, 2, 3, 3]),
        # Halves do not alternate between two directions, so that no gap is left out.
        (4, 6, [0, 2, 3, 5, 6]),
        (8, 12, [0, 2, 3, 5, 6, 8, 9, 11, 12]),
        (6, 12, [0, 2, 4, 6, 8, 10, 12]),
        (12, 6, [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]),
        (7, 24, [0, 3, 7, 10, 14, 17, 21, 24]),
    ],
)
def test_layers_are_matched_at_the_same_relative_depth(student, teacher, expected):
    assert matched_layers(student, teacher) == expected


def test_losses_without_any_weight_are_rejected(models, tmp_path):
    weights = [f"--{name}_weight=0" for name in ("hidden", "last", "vector")]
    message = error_of(task_of, models, tmp_path, *weights)
    assert message.startswith("--last_weight must be above 0 if the other weights are 0")
    assert task_of(models, tmp_path, *weights, "--masked_lm_weight=0.1")


def test_positions_that_the_text_does_not_reach_are_said(models, tmp_path, capsys):
    (models / "long.txt").write_text(" ".join(100 * ["the"]))
    positions = load_pretrained(models / "student").config.max_position_embeddings
    for length in (9, positions):
        changes = f"--max_seq_length={length}", f"--input_file={models / 'long.txt'}"
        assert task_of(models, tmp_path, *changes).train_data.table.lengths.max() == length
        assert ("longer texts" in capsys.readouterr().out) == (length < positions)
    with pytest.raises(UserError, match=f"above the {positions} positions"):
        task_of(models, tmp_path, f"--max_seq_length={positions + 1}")


def test_losses_equal_those_of_numpy(models, tmp_path, eager):
    task = task_of(models, tmp_path)
    outputs, features = outputs_of(task, 16)
    mask = features["input_mask"].numpy().astype(bool)
    errors = []
    sample = task.train_data.table.batch(np.arange(150), 16, ["input_ids"])
    teacher = load_pretrained(models / "teacher").encoder
    states = teacher(sample, output_hidden_states=True)["hidden_states"]
    is_token = sample["input_mask"].astype(bool)
    for state, layer in zip(outputs["student"], (0, 2, 4), strict=True):
        target = teacher(features, output_hidden_states=True)["hidden_states"][layer].numpy()
        variance = states[layer].numpy()[is_token].var(axis=0).sum()
        errors.append(((state.numpy() - target) ** 2).sum(axis=-1)[mask].mean() / variance)
    losses = {
        name: float(pair.sum / pair.count)
        for name, pair in task.losses(outputs, features, training=True).items()
    }
    assert losses["hidden_loss"] == pytest.approx(0.5 * np.mean(errors[:-1]), rel=1e-4)
    assert losses["last_loss"] == pytest.approx(errors[-1], rel=1e-4)
    cosines = []
    for row, tokens in enumerate(mask):
        a = outputs["student"][-1].numpy()[row][tokens].mean(axis=0)
        b = target[row][tokens].mean(axis=0)
        cosines.append(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert losses["vector_loss"] == pytest.approx(2 * np.mean(1 - np.array(cosines)), rel=1e-4)


def test_padding_changes_no_loss(models, tmp_path, eager):
    task = task_of(models, tmp_path)
    short, long = (task.losses(*outputs_of(task, length), training=True) for length in (16, 23))
    for name, pair in short.items():
        np.testing.assert_allclose(pair, long[name], rtol=1e-5)


def test_a_teacher_is_its_own_perfect_student(models, tmp_path, eager):
    task = task_of(models, tmp_path, student="teacher")
    outputs, features = outputs_of(task, 16)
    assert all(
        float(pair.sum) < 1e-4 for pair in task.losses(outputs, features, training=True).values()
    )


def test_layers_of_several_blocks_are_matched_by_their_last(models, tmp_path, eager):
    config = load_pretrained(models / "teacher").config
    config = config.replace(num_hidden_layers=2, inner_group_num=3, share_parameters="all")
    vocabulary = models / "teacher" / "spiece.model"
    model = AlbertForPreTraining(config, seed=8)
    save_pretrained(model, tmp_path / "blocks", spm_model_file=vocabulary)
    own = f"--teacher={tmp_path / 'blocks'}", f"--init_checkpoint={tmp_path / 'blocks'}"
    outputs, features = outputs_of(task_of(models, tmp_path, *own), 16)
    targets = model.encoder(features, output_hidden_states=True)["hidden_states"]
    for state, block in zip(outputs["teacher"], (0, 3, 6), strict=True):
        np.testing.assert_allclose(state, targets[block], atol=1e-5)
    assert len(outputs["student"]) == 3


@pytest.mark.slow
def test_a_student_approaches_its_teacher_and_keeps_its_head(models, tmp_path):
    flag = "--learning_rate=0.01"
    start = distill(models, tmp_path / "start", "--do_train=false")["eval"]
    end = distill(models, tmp_path / "run", flag, "--num_train_steps=60", "--num_warmup_steps=5")
    assert end["eval"]["error_2"] < 0.7 * start["error_2"]
    assert end["eval"]["vector_cosine"] > start["vector_cosine"] + 0.1
    again = distill(
        models, tmp_path / "again", f"--init_checkpoint={tmp_path / 'run'}", "--do_train=false"
    )
    assert again["eval"] == pytest.approx(end["eval"], rel=1e-4)
    head = "cls/predictions/output_bias"
    kept, saved = (
        load_pretrained(path).named_variables()[head].numpy()
        for path in (models / "student", tmp_path / "run")
    )
    np.testing.assert_array_equal(saved, kept)
    assert Tokenizer.from_pretrained(tmp_path / "run" / "model").encode(WORDS)


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(models, tmp_path):
    steps = ("--num_train_steps=5", "--num_warmup_steps=2", "--do_eval=false")
    distill(models, tmp_path / "whole", *steps)
    distill(models, tmp_path / "parts", *steps, "--stop_after_steps=3")
    distill(models, tmp_path / "parts", *steps)
    found = weights(tmp_path / "parts")
    for name, value in weights(tmp_path / "whole").items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.slow
def test_a_student_of_another_width_learns_through_a_projection(models, tmp_path):
    steps = "--num_train_steps=4", "--num_warmup_steps=1"
    found = distill(models, tmp_path / "run", *steps, student="narrow")["eval"]
    assert found["error_2"] > 0
    assert found["vector_cosine"] == pytest.approx(1 - found["vector_loss"] / 2, rel=1e-4)
    assert load_pretrained(tmp_path / "run").config.hidden_size == 12


def test_a_student_of_another_vocabulary_is_rejected(models, tmp_path, tiny_pretrained):
    config = load_pretrained(tiny_pretrained).config
    other = AlbertForPreTraining(config.replace(vocab_size=config.vocab_size + 1))
    save_pretrained(other, tmp_path / "other")
    message = error_of(task_of, models, tmp_path, f"--init_checkpoint={tmp_path / 'other'}")
    assert "another vocabulary" in message and "--teacher" in message
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(UserError, match="contains no text"):
        task_of(models, tmp_path, f"--input_file={tmp_path / 'empty.txt'}")


@pytest.mark.slow
def test_the_masked_lm_head_is_trained_if_asked_for(models, tmp_path):
    words = WORDS.split()  # in a few orders, so that a word can be told from those beside it
    lines = [" ".join(words[start : start + 12]) for start in range(0, 6, 3)] * 50
    (tmp_path / "text.txt").write_text("\n".join(lines))
    text = f"--input_file={tmp_path / 'text.txt'}", f"--eval_file={tmp_path / 'text.txt'}"
    flags_ = *text, "--masked_lm_weight=10", "--learning_rate=0.01", "--num_warmup_steps=5"
    start = distill(models, tmp_path / "start", *flags_, "--do_train=false")["eval"]
    end = distill(models, tmp_path / "run", *flags_, "--num_train_steps=60")["eval"]
    assert end["masked_lm_loss"] < 0.8 * start["masked_lm_loss"]
    again = distill(
        models, tmp_path / "a", *flags_, f"--init_checkpoint={tmp_path / 'run'}", "--do_train=false"
    )["eval"]
    assert again == pytest.approx(end, rel=1e-3)


@pytest.mark.parametrize("masked_lm_weight", [0.0, 0.5])
def test_checkpoints_name_a_students_variables_as_its_own_class_does(
    models, tmp_path, masked_lm_weight
):
    """So that runs of other versions are continued, and a run that was stopped can be read as a model."""
    task = task_of(models, "unused", f"--masked_lm_weight={masked_lm_weight}", student="narrow")
    student = task.build_model(dtype="float32", recompute_activations=False, seed=0)
    path = tf.train.Checkpoint(model=student).write(str(tmp_path / "student"))
    model = AlbertForPreTraining(task.model_config, seed=8)
    checkpoint = tf.train.Checkpoint(model=model).write(str(tmp_path / "own"))
    names = {name for name, _ in tf.train.list_variables(checkpoint)}
    added = {f"model/to_teacher/{part}/.ATTRIBUTES/VARIABLE_VALUE" for part in ("kernel", "bias")}
    assert {name for name, _ in tf.train.list_variables(path)} == names | added

    tf.train.Checkpoint(model=model).read(path).assert_existing_objects_matched().expect_partial()
    kernel = student.encoder.named_variables()["bert/pooler/dense/kernel"]
    np.testing.assert_array_equal(model.named_variables()["bert/pooler/dense/kernel"], kernel)
