"""Training of sentence embeddings: losses, negatives of all devices, evaluation, files, wrong input."""

import contextlib
import itertools
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError, load_pretrained
from albert_tf.model.encoder import fold_seed
from albert_tf.tasks.embedding import losses
from albert_tf.tasks.embedding.settings import EmbeddingConfig
from albert_tf.tasks.embedding.source import EmbeddingSource
from albert_tf.tasks.embedding.task import EmbeddingTask
from albert_tf.training import loop
from albert_tf.training.devices import make_strategy
from albert_tf.training.state import start_run
from albert_tf.training.step import Trainer
from tests.helpers import (
    assert_same_run,
    batch_of,
    eagerly,
    error_of,
    fine_tune_here,
    fine_tuning_settings,
    lines,
    make_task,
    weights,
)

SCALE = 7.0


@pytest.fixture
def flags_of(embedding_files, tiny_pretrained):
    """A function that makes the flags for a loss."""

    def flags(kind: str, **changes: object) -> list[str]:
        name, columns = {
            "infonce": ("pairs", "q,p"),
            "negatives": ("triplets", "q,p,n"),
            "triplet": ("triplets", "q,p,n"),
        }.get(kind, ("scored", "a,b"))
        values = {
            "train_file": embedding_files / f"train_{name}.tsv",
            "eval_file": embedding_files / f"dev_{name}.tsv",
            "text_columns": columns,
            "loss": "infonce" if kind == "negatives" else kind,
            "init_checkpoint": tiny_pretrained,
            "max_seq_length": 16,
            "scale": SCALE,
            "train_batch_size": 6,
            "num_train_steps": 4,
            "max_score": 3,
            **changes,
        }
        return [f"--{name}={value}" for name, value in values.items()]

    return flags


def cosine(a, b) -> float:
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def infonce(vectors, texts, known) -> float:
    """The definition, pair by pair; `known` are pairs of a text and one of its positives."""
    total = 0.0
    for row, (anchor, positive, *_) in enumerate(vectors):
        scores = [cosine(anchor, positive)]
        for other, column in itertools.product(range(len(vectors)), range(1, len(vectors[0]))):
            pair = texts[row][0], texts[other][column]
            is_known = pair in known or pair[::-1] in known or pair[0] == pair[1]
            if (other, column) != (row, 1) and not is_known:
                scores.append(cosine(anchor, vectors[other][column]))
        total -= SCALE * scores[0] - np.logaddexp.reduce(SCALE * np.array(scores))
    return total / len(vectors)


def expected_loss(made, vectors, items) -> float:
    texts = [item.texts for item in items]
    scores = [item.score for item in items]
    first = [cosine(row[0], row[1]) for row in vectors]
    match made.config.loss:
        case "infonce":
            known = {tuple(item.texts[:2]) for item in made.items["train"]}
            return infonce(vectors, texts, known)
        case "cosine":
            return np.mean([(c - s / 3) ** 2 for c, s in zip(first, scores, strict=True)])
        case "triplet":
            second = [cosine(row[0], row[2]) for row in vectors]
            return np.mean([max(0, 0.5 - p + n) for p, n in zip(first, second, strict=True)])
    pairs = itertools.product(zip(first, scores, strict=True), repeat=2)
    return math.log1p(sum(math.exp(SCALE * (a - b)) for (a, s), (b, t) in pairs if s < t))


@pytest.mark.parametrize("loss", ["infonce", "negatives", "cosine", "cosent", "triplet"])
def test_a_loss_is_its_definition(flags_of, loss):
    made = make_task("embedder", *flags_of(loss))
    examples = [3, 13, 23, 1, 0, 7]  # 3, 13, 23: one anchor
    choices = made.tables["train"].choices
    vectors = np.random.default_rng(2).normal(size=(6, choices, 5)).astype(np.float32)
    outputs = {"embedding": tf.constant(vectors)}
    (ratio,) = made.losses(outputs, batch_of(made, "train", examples, 16), training=True).values()
    expected = expected_loss(made, vectors, [made.items["train"][index] for index in examples])
    assert float(ratio.sum / ratio.count) == pytest.approx(expected, rel=1e-5)


def loss_and_gradient(made, vectors, examples):
    """The loss of vectors of examples, and its gradient."""
    vectors = tf.constant(vectors)
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        features = batch_of(made, "train", examples, 16)
        ratio = made.losses({"embedding": vectors}, features, training=True)["embedding_loss"]
        loss = ratio.sum / ratio.count
    return float(loss), tape.gradient(loss, vectors).numpy()


@pytest.mark.parametrize("loss", ["infonce", "negatives", "cosine", "cosent", "triplet"])
def test_the_loss_of_several_sizes_is_the_mean_of_those_of_cut_vectors(flags_of, loss):
    made = make_task("embedder", *flags_of(loss, matryoshka_dims="2,3:2.5,5"))
    whole = make_task("embedder", *flags_of(loss))
    examples = [3, 13, 23, 1, 0, 7]
    shape = (6, made.tables["train"].choices, 5)
    vectors = np.random.default_rng(3).normal(size=shape).astype(np.float32)

    expected_loss = 0.0
    expected_gradient = np.zeros(shape)
    for size, weight in ((2, 1), (3, 2.5), (5, 1)):
        loss_of_size, gradient = loss_and_gradient(whole, vectors[..., :size], examples)
        expected_loss += weight / 4.5 * loss_of_size
        expected_gradient[..., :size] += weight / 4.5 * gradient
    found_loss, found_gradient = loss_and_gradient(made, vectors, examples)
    assert found_loss == pytest.approx(expected_loss, rel=1e-5)
    np.testing.assert_allclose(found_gradient, expected_gradient, atol=1e-5)


def test_a_loss_of_cut_vectors_by_hand(flags_of):
    made = make_task("embedder", *flags_of("cosine", matryoshka_dims="2:3,3", max_score=4))
    # Cosines of the first two values 0.6, of all three 0.6 * 5 / 13 = 3 / 13.
    vectors = np.array([[[1, 0, 0], [3, 4, 12]]], np.float32)
    target = made.items["train"][0].score / 4
    loss, _ = loss_and_gradient(made, vectors, [0])
    expected = (3 * (0.6 - target) ** 2 + (3 / 13 - target) ** 2) / 4
    assert loss == pytest.approx(expected, rel=1e-5)


def test_only_the_first_values_learn_from_the_smallest_size(flags_of):
    made = make_task("embedder", *flags_of("negatives", matryoshka_dims=2))
    vectors = np.random.default_rng(4).normal(size=(6, 3, 5)).astype(np.float32)
    _, gradient = loss_and_gradient(made, vectors, range(6))
    assert np.all(gradient[..., :2]) and not np.any(gradient[..., 2:])


@pytest.mark.slow
def test_a_run_with_several_sizes_resumes_and_tells_them(flags_of, tmp_path, monkeypatch):
    flags = flags_of("infonce", matryoshka_dims="20,5:2", eval_every_steps=2)

    def train(name):
        with eagerly():
            return fine_tune_here("embedder", *flags, f"--output_dir={tmp_path / name}")

    train("whole")
    card = (tmp_path / "whole" / "model" / "README.md").read_text()
    assert "| may be cut to their first values | 5, 20 |" in card

    after_steps = loop.TrainingLoop._after_steps

    def fail(self, outputs):
        if self._state.step == 4:  # the newest checkpoint is that of step 2
            raise KeyboardInterrupt
        after_steps(self, outputs)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop.TrainingLoop, "_after_steps", fail)
        train("resumed")
    assert train("resumed")["steps_in_this_process"] == 2
    assert_same_run(tmp_path / "resumed", tmp_path / "whole")


@pytest.mark.slow
def test_a_run_of_before_has_whole_vectors(flags_of, tmp_path):
    flags = [*flags_of("infonce", num_train_steps=1), f"--output_dir={tmp_path}"]
    with eagerly():
        fine_tune_here("embedder", *flags)
    assert "may be cut" not in (tmp_path / "model" / "README.md").read_text()
    recorded = json.loads((tmp_path / "config.json").read_text())
    assert recorded["task"].pop("matryoshka_dims") == ""
    (tmp_path / "config.json").write_text(json.dumps(recorded))
    with eagerly():
        assert fine_tune_here("embedder", *flags)["step"] == 1
        line = error_of(fine_tune_here, "embedder", *flags, "--matryoshka_dims=5")
    assert "matryoshka_dims" in line


def test_positives_outside_of_the_batch_are_no_negatives_either():
    keys = np.unique(np.concatenate(losses.pair_keys(np.array([[0, 1], [0, 2], [3, 2]]))))
    pairs = {tuple(divmod(int(key), 2**31)) for key in keys}
    assert pairs == {(0, 1), (1, 0), (0, 2), (2, 0), (3, 2), (2, 3), (0, 0), (3, 3)}


def assert_same_training(flags, parts, tmp_path):
    """Checks that parts of a batch, on devices or one after the other, train as the whole batch does."""
    flags = [*flags, "--log_every_steps=1", "--do_eval=false", "--num_train_steps=3"]
    with eagerly():
        fine_tune_here("embedder", *flags, f"--output_dir={tmp_path / 'whole'}")
    is_mirrored = "--distribution_strategy=mirrored" in parts
    with contextlib.nullcontext() if is_mirrored else eagerly():
        fine_tune_here("embedder", *flags, *parts, f"--output_dir={tmp_path / 'parts'}")
    whole, of_parts = (lines(tmp_path / name / "metrics.jsonl") for name in ("whole", "parts"))
    assert len({line["loss"] for line in whole}) == 3
    for line, other in zip(whole, of_parts, strict=True):
        assert other["loss"] == pytest.approx(line["loss"], rel=1e-4)
        assert other["gradient_norm"] == pytest.approx(line["gradient_norm"], rel=1e-4)
    whole, of_parts = (weights(tmp_path / name) for name in ("whole", "parts"))
    for name, value in whole.items():
        np.testing.assert_allclose(of_parts[name], value, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("loss", ["negatives", "cosent"])
@pytest.mark.usefixtures("unclipped")
def test_two_devices_train_as_one_with_the_same_batch(flags_of, tmp_path, loss, accumulation):
    parts = ["--distribution_strategy=mirrored", f"--gradient_accumulation_steps={accumulation}"]
    assert_same_training(flags_of(loss, learning_rate=0.1), parts, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["infonce", "cosine", "cosent", "triplet"])
@pytest.mark.usefixtures("unclipped")
def test_micro_batches_train_as_the_whole_batch(flags_of, tmp_path, loss):
    flags = flags_of(loss, learning_rate=0.1, projection_size=9)
    assert_same_training(flags, ["--gradient_accumulation_steps=3"], tmp_path)


@pytest.mark.parametrize(
    ("loss", "changes"),
    [
        ("negatives", {}),
        ("infonce", {"hidden_dropout_prob": 0.3}),
        ("cosent", {"attention_probs_dropout_prob": 0.3}),
        ("negatives", {"matryoshka_dims": "5:2,20"}),
        pytest.param("negatives", {"hidden_dropout_prob": 0.3}, marks=pytest.mark.slow),
    ],
)
def test_gradients_of_micro_batches_are_those_of_the_loss_of_the_whole_batch(
    flags_of, tmp_path, loss, changes, request
):
    flags = [*flags_of(loss, gradient_accumulation_steps=3, **changes), f"--output_dir={tmp_path}"]
    run, optimizer, config = fine_tuning_settings("embedder", *flags)
    with make_strategy(run).scope():
        task = EmbeddingTask(config, run)
        trainer = Trainer(start_run(task, run, optimizer))
    model = trainer.model
    features = batch_of(task, "train", range(6), 16)
    counts = task.loss_counts(features)
    seed = tf.constant([1, 2])
    variables = model.trainable_variables

    def of_the_whole_batch():
        with tf.GradientTape() as tape:
            vectors = []
            for part in range(3):
                two_examples = {name: value[2 * part :][:2] for name, value in features.items()}
                outputs = model(two_examples, training=True, seed=fold_seed(seed, part))
                vectors.append(outputs["embedding"])
            losses = task.losses({"embedding": tf.concat(vectors, axis=0)}, features, training=True)
            loss = losses["embedding_loss"].sum / counts["embedding_loss"]
        expected = tape.gradient(loss, variables, unconnected_gradients="zero")
        return losses["embedding_loss"], [tf.convert_to_tensor(gradient) for gradient in expected]

    compute = trainer._batch_gradients
    is_compiled = "slow" in request.keywords
    if (
        is_compiled
    ):  # as on a GPU; XLA draws other dropout masks than the kernels, so both sides are compiled
        model.cuts_padding = False
        compute = tf.function(compute, jit_compile=True, autograph=False)
        of_the_whole_batch = tf.function(of_the_whole_batch, jit_compile=True, autograph=False)
    with contextlib.nullcontext() if is_compiled else eagerly():
        gradients, _, pairs = compute(features, counts, seed)
        expected_loss, expected = of_the_whole_batch()

    np.testing.assert_allclose(pairs["embedding_loss"], expected_loss, rtol=1e-4)
    for variable, found, of_whole_batch in zip(variables, gradients, expected, strict=True):
        largest = float(tf.reduce_max(tf.abs(of_whole_batch)))
        np.testing.assert_allclose(
            found, of_whole_batch, atol=1e-4 * largest + 1e-5, err_msg=variable.name
        )


def test_each_column_has_its_own_length_and_the_same_vectors(flags_of):
    made = make_task("embedder", *flags_of("negatives", pooling="max", max_seq_length=64))
    model = made.build_model(dtype="float32", recompute_activations=False, seed=1)
    features = batch_of(made, "train", range(6), 64)
    assert model.cuts_padding
    found = model(features)["embedding"]
    model.cuts_padding = False
    assert found.shape == [6, 3, 20]
    np.testing.assert_allclose(found, model(features)["embedding"], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss, changes, metrics",
    [
        ("infonce", {"projection_size": 9, "normalize": True}, "ndcg_at_10 mrr_at_10 recall_at_1"),
        ("cosent", {"pooling": "cls"}, "spearman pearson"),
        ("triplet", {"gradient_accumulation_steps": 2}, "triplet_accuracy"),
    ],
)
def test_a_run_trains_evaluates_and_writes_a_model(
    flags_of, embedding_files, tmp_path, loss, changes, metrics
):
    more = {"num_train_steps": 3, "learning_rate": 0.01, "eval_every_steps": 3, **changes}
    flags = flags_of(loss, **more)
    with eagerly():
        results = fine_tune_here("embedder", *flags, f"--output_dir={tmp_path}")
    assert {*metrics.split()} <= results["eval"].keys() and "loss" not in results["eval"]
    model = load_pretrained(tmp_path)
    how = {name: changes[name] for name in ("pooling", "normalize") if name in changes}
    assert how.items() <= model.config.sentence_embedding.items()
    # The finished model is evaluated alike, with the settings of its training.
    flags = [flag for flag in flags if "projection" not in flag and "pooling" not in flag]
    flags += ["--do_train=false", f"--init_checkpoint={tmp_path}"]
    with eagerly():
        again = fine_tune_here("embedder", *flags, f"--output_dir={tmp_path / 'again'}")
    assert again["eval"] == pytest.approx(results["eval"], abs=1e-5)


def test_any_encoder_is_evaluated_without_training(flags_of, embedding_files, tmp_path):
    corpus = f"--corpus_file={embedding_files / 'corpus.txt'}"
    flags = [*flags_of("infonce"), corpus, "--do_train=false", "--do_predict"]
    flags += [f"--predict_file={embedding_files / 'dev_pairs.tsv'}", f"--output_dir={tmp_path}"]
    with eagerly():
        fine_tune_here("embedder", *flags)
    vectors = np.load(tmp_path / "predictions" / "predict.npz")["embeddings"]
    assert vectors.shape == (14, 20)
    searched = np.load(tmp_path / "predictions" / "eval.npz")["embeddings"]
    # Questions, their texts, the corpus without a repeated line.
    assert len(searched) == 10 + 14 + 2


def test_a_query_finds_itself_only_if_it_should(flags_of, tmp_path):
    (tmp_path / "t.csv").write_text("q,p\na,b\nb,c\nd,d\n")
    made = make_task("embedder", *flags_of("infonce", eval_file=tmp_path / "t.csv"))
    assert made.source.own_texts == [-1, 0, -1]
    vectors = np.array([[9, 1], [9, 0], [0, 9], [9, 0], [8, 2], [0, 9]])  # a b d, b c d
    assert made.evaluate({"embeddings": vectors})["recall_at_1"] == 1


@pytest.mark.parametrize("loss, metric", [("infonce", "ndcg_at_10"), ("triplet", None)])
def test_metrics_of_vectors_that_are_not_finite_are_undefined(flags_of, loss, metric):
    made = make_task("embedder", *flags_of(loss))
    shape = (len(made.tables["eval"]), 3, 5) if loss == "triplet" else (len(made.items["eval"]), 5)
    vectors = np.ones(shape, np.float32)
    assert None not in made.evaluate({"embeddings": vectors}).values()
    vectors[1] = np.nan
    results = made.evaluate({"embeddings": vectors})
    assert (metric or "triplet_accuracy") in results
    assert {*results.values()} == {None}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"text_columns": "q"}, "--text_columns must be 2 to 9 names, got 'q'"),
        ({"loss": "triplet"}, "--text_columns must be 3 names, got 'q,p'"),
        ({"loss": "cosine"}, "has no column 'score'"),
        ({"train_file": ""}, "--train_file is required"),
        ({"matryoshka_dims": "0,5"}, "--matryoshka_dims must be above 0, got 0:1"),
        ({"matryoshka_dims": "5:-1"}, "--matryoshka_dims must be above 0, got 5:-1"),
        ({"matryoshka_dims": "5:nan"}, "--matryoshka_dims must be above 0, got 5:nan"),
        ({"matryoshka_dims": "5,21"}, "--matryoshka_dims has 21, but vectors have 20 values"),
        ({"matryoshka_dims": "9", "projection_size": 8}, "has 9, but vectors have 8 values"),
        ({"matryoshka_dims": "5,5"}, "--matryoshka_dims has 5 twice"),
        ({"matryoshka_dims": "5,"}, "--matryoshka_dims must be whole numbers, or number:weight"),
        ({"matryoshka_dims": "small"}, "number:weight pairs; got 'small'"),
        ({"matryoshka_dims": "5:"}, "number:weight pairs; got '5:'"),
    ],
)
def test_wrong_input_is_named(flags_of, changes, message):
    assert message in error_of(make_task, "embedder", *flags_of("infonce", **changes))


def test_a_score_that_no_cosine_reaches_names_its_row(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,score\nx,y,1\nx,z,-5.0\n")
    values = {"train_file": str(tmp_path / "t.csv"), "text_columns": "a,b", "loss": "cosine"}
    with pytest.raises(UserError, match=r"row 2 \(line 3\): score -5 is outside of -1 to 1; --max"):
        EmbeddingSource(EmbeddingConfig(**values)).read("train")
    assert len(EmbeddingSource(EmbeddingConfig(**values, max_score=5)).read("train")) == 2
