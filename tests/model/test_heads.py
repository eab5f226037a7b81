"""Task heads: names and shapes, values equal to NumPy, dropout, gradients, saving and loading."""

import json
import pickle

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from scipy.special import log_softmax, softmax

from albert_tf import load_pretrained, save_pretrained
from albert_tf.formats.pretrained import read_weights
from albert_tf.model import heads
from tests.helpers import BATCH, LENGTH, TINY, batch_of, make_task, noisy, random_features

LABELS = ("no", "perhaps", "yes")
CHOICES = 5
CLASSIFIER = heads.AlbertForSequenceClassification
CHOICE = heads.AlbertForMultipleChoice
SPAN = heads.AlbertForSpan
SPAN_OR_NONE = heads.AlbertForSpanOrNone
TAGGER = heads.AlbertForTokenClassification


def make(cls, seed=3, **changes):
    return noisy(cls(TINY.with_labels(LABELS, "moods").replace(**changes), seed=seed), seed)


def features_for(cls, seed=0) -> dict[str, np.ndarray]:
    names = ("input_ids", "input_mask", "segment_ids")
    if cls is CHOICE:
        features = random_features(BATCH * CHOICES, seed)
        return {name: features[name].reshape(BATCH, CHOICES, LENGTH) for name in names}
    features = {name: random_features(BATCH, seed)[name] for name in names}
    # Answers are in the second segment or at [CLS].
    features["p_mask"] = 1 - features["segment_ids"] * features["input_mask"]
    features["p_mask"][:, 0] = 0
    return features


def values(model) -> dict[str, np.ndarray]:
    return {
        name: variable.numpy().astype(np.float64)
        for name, variable in model.named_variables().items()
    }


HEADS = {
    CLASSIFIER: ({"output_weights": (3, 20), "output_bias": (3,)}, {"logits": (6, 3)}),
    TAGGER: ({"output_weights": (3, 20), "output_bias": (3,)}, {"logits": (6, 11, 3)}),
    CHOICE: ({"output_weights": (1, 20), "output_bias": (1,)}, {"logits": (6, 5)}),
    SPAN: (
        {"cls/squad/output_weights": (2, 20), "cls/squad/output_bias": (2,)},
        {"start_logits": (6, 11), "end_logits": (6, 11)},
    ),
    SPAN_OR_NONE: (
        {
            "start_logits/dense/kernel": (20, 1),
            "start_logits/dense/bias": (1,),
            "end_logits/dense_0/kernel": (40, 20),
            "end_logits/dense_0/bias": (20,),
            "end_logits/LayerNorm/beta": (20,),
            "end_logits/LayerNorm/gamma": (20,),
            "end_logits/dense_1/kernel": (20, 1),
            "end_logits/dense_1/bias": (1,),
            "answer_class/dense_0/kernel": (40, 20),
            "answer_class/dense_0/bias": (20,),
            "answer_class/dense_1/kernel": (20, 1),
        },
        {
            "start_log_probs": (6, 11),
            "cls_logits": (6,),
            "start_top_log_probs": (6, 5),
            "start_top_index": (6, 5),
            "end_top_log_probs": (6, 25),
            "end_top_index": (6, 25),
        },
    ),
}
ALL = pytest.mark.parametrize("cls", HEADS, ids=lambda cls: cls.__name__)


@ALL
def test_variables_and_outputs_have_their_names_and_shapes(cls):
    names, outputs = HEADS[cls]
    model = make(cls)
    shapes = {name: tuple(variable.shape) for name, variable in model.named_variables().items()}
    assert {name: shape for name, shape in shapes.items() if not name.startswith("bert/")} == names
    assert len(shapes) == len(model.trainable_variables)
    assert {name: tuple(value.shape) for name, value in model(features_for(cls)).items()} == outputs


@pytest.mark.parametrize("cls", [CLASSIFIER, TAGGER, SPAN], ids=lambda cls: cls.__name__)
def test_logits_equal_numpy(cls):
    model = make(cls)
    features = features_for(cls)
    v = values(model)
    start = "cls/squad/" if cls is SPAN else ""
    encoded = model.encoder(features)["pooled_output" if cls is CLASSIFIER else "sequence_output"]
    expected = encoded.numpy() @ v[f"{start}output_weights"].T + v[f"{start}output_bias"]
    outputs = model(features)
    if cls is SPAN:
        outputs = {"logits": tf.stack([outputs["start_logits"], outputs["end_logits"]], axis=-1)}
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)


def test_multiple_choice_scores_each_choice_independently():
    model = make(CHOICE)
    features = features_for(CHOICE)
    logits = model(features)["logits"].numpy()
    for choice in range(CHOICES):
        alone = {name: value[:, choice : choice + 1] for name, value in features.items()}
        np.testing.assert_allclose(model(alone)["logits"][:, 0], logits[:, choice], atol=1e-5)
    assert np.std(logits) > 0.01


def numpy_span_or_none(v, hidden, p_mask, starts):
    """SQuAD 2.0's head in the original: log probabilities of starts [B, L], ends [B, K, L]; score of no answer [B]."""

    def masked(logits, mask):
        return logits * (1 - mask) - 1e30 * mask

    def dense(x, name):
        return x @ v[f"{name}/kernel"] + v.get(f"{name}/bias", 0.0)

    start_logits = masked(dense(hidden, "start_logits/dense")[:, :, 0], p_mask)
    batch, length, width = hidden.shape
    ends = []
    for k in range(starts.shape[1]):
        of_start = np.repeat(hidden[np.arange(batch), starts[:, k]][:, None], length, axis=1)
        joined = np.tanh(dense(np.concatenate([hidden, of_start], axis=-1), "end_logits/dense_0"))
        mean = joined.mean(-1, keepdims=True)
        variance = joined.var(-1, keepdims=True)
        normed = (joined - mean) / np.sqrt(variance + 1e-12)
        normed = normed * v["end_logits/LayerNorm/gamma"] + v["end_logits/LayerNorm/beta"]
        ends.append(
            log_softmax(masked(dense(normed, "end_logits/dense_1")[:, :, 0], p_mask), axis=-1)
        )
    summed = np.einsum("bld,bl->bd", hidden, softmax(start_logits, axis=-1))
    answer = np.tanh(dense(np.concatenate([summed, hidden[:, 0]], axis=-1), "answer_class/dense_0"))
    no_answer = dense(answer, "answer_class/dense_1")[:, 0]
    return log_softmax(start_logits, axis=-1), np.stack(ends, axis=1), no_answer


@pytest.fixture
def span_or_none():
    model = make(SPAN_OR_NONE, classifier_dropout_prob=0.0)
    features = features_for(SPAN_OR_NONE)
    hidden = model.encoder(features)["sequence_output"].numpy().astype(np.float64)
    return model, features, values(model), hidden


def test_spans_or_none_in_training_equal_numpy(span_or_none):
    model, features, v, hidden = span_or_none
    starts = np.array([[0], [6], [5], [4], [7], [3]], np.int32)
    outputs = model({**features, "start_positions": starts}, training=True)
    start, ends, no_answer = numpy_span_or_none(v, hidden, features["p_mask"], starts)
    allowed = features["p_mask"] == 0
    for name, expected in {"start_log_probs": start, "end_log_probs": ends[:, 0]}.items():
        found = outputs[name].numpy()[allowed]
        np.testing.assert_allclose(found, expected[allowed], atol=1e-4)
    np.testing.assert_allclose(outputs["cls_logits"], no_answer, atol=1e-4)
    assert np.all(outputs["start_log_probs"].numpy()[~allowed] < -1e29)
    assert "end_top_index" not in outputs
    from_first = model({**features, "start_positions": np.zeros_like(starts)}, training=True)
    changed = np.abs(from_first["end_log_probs"] - outputs["end_log_probs"])[allowed]
    assert changed.max() > 0.01  # ends do depend on the start


def test_spans_or_none_in_prediction_equal_numpy(span_or_none):
    model, features, v, hidden = span_or_none
    outputs = {name: value.numpy() for name, value in model(features).items()}
    start, ends, no_answer = numpy_span_or_none(
        v, hidden, features["p_mask"], outputs["start_top_index"]
    )
    np.testing.assert_allclose(outputs["cls_logits"], no_answer, atol=1e-4)
    top_ends = outputs["end_top_index"].reshape(BATCH, 5, 5)
    top_end_log_probs = outputs["end_top_log_probs"].reshape(BATCH, 5, 5)
    num_checked = 0
    for row in range(BATCH):
        count = min(5, int((features["p_mask"][row] == 0).sum()))
        best = np.argsort(-start[row])[:count]
        assert outputs["start_top_index"][row, :count].tolist() == best.tolist()
        found = outputs["start_top_log_probs"][row, :count]
        np.testing.assert_allclose(found, start[row, best], atol=1e-4)
        for k in range(count):
            best = np.argsort(-ends[row, k])[:count]
            assert top_ends[row, k, :count].tolist() == best.tolist()
            found = top_end_log_probs[row, k, :count]
            np.testing.assert_allclose(found, ends[row, k, best], atol=1e-4)
            num_checked += 1
    assert num_checked > BATCH


@pytest.mark.parametrize(
    "cls", [CLASSIFIER, TAGGER, CHOICE, SPAN_OR_NONE], ids=lambda cls: cls.__name__
)
def test_dropout_of_heads_is_on_only_in_training(cls):
    features = features_for(cls)
    if cls is SPAN_OR_NONE:
        features["start_positions"] = np.ones([BATCH, 1], np.int32)
    name = "cls_logits" if cls is SPAN_OR_NONE else "logits"

    def outputs(rate, training, seed=7):
        model = make(cls, classifier_dropout_prob=rate)
        return model(features, training=training, seed=tf.constant([seed, 1]))[name].numpy()

    plain = outputs(0.0, False)
    np.testing.assert_array_equal(outputs(0.5, False), plain)
    np.testing.assert_allclose(outputs(0.0, True), plain, atol=1e-6)
    dropped = outputs(0.5, True)
    assert np.abs(dropped - plain).max() > 0.01
    np.testing.assert_array_equal(outputs(0.5, True), dropped)
    assert np.abs(outputs(0.5, True, seed=8) - dropped).max() > 0.01


TRAINED = {CLASSIFIER: "tsv", TAGGER: "tagging", CHOICE: "race"}
TRAINED |= {SPAN: "squad1.1", SPAN_OR_NONE: "squad2.0"}


@ALL
def test_every_variable_learns(cls, task_flags):
    task = make_task(*task_flags[TRAINED[cls]])
    features = batch_of(task, "train", range(len(task.tables["train"])))
    labels = TINY.with_labels(task.labels, task.task_name).foreign
    model = make(cls, max_position_embeddings=64, foreign=labels)
    with tf.GradientTape() as tape:
        outputs = model(features, training=True, seed=tf.constant([1, 2]))
        losses = task.losses(outputs, features, training=True)
        total = tf.add_n([ratio.sum for ratio in losses.values()])
    gradients = tape.gradient(total, model.named_variables())
    without = {name for name, gradient in gradients.items() if gradient is None}
    pooler = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    assert without == (set() if cls.uses_pooler else pooler)
    assert cls.uses_pooler == (cls in (CLASSIFIER, CHOICE))
    largest = {
        name: np.abs(tf.convert_to_tensor(gradient)).max()
        for name, gradient in gradients.items()
        if gradient is not None
    }
    # The same for every position or choice, so that a softmax over them does not change.
    shifts = {"start_logits/dense/bias", "end_logits/dense_1/bias", "cls/squad/output_bias"}
    shifts.add("end_logits/LayerNorm/beta")
    shifts |= {"output_bias"} if cls is CHOICE else set()
    for name, size in largest.items():
        if name.endswith("self/key/bias"):
            continue  # adds the same to all scores of a query
        assert (size < 1e-4) if name in shifts else (size > 1e-6), (name, size)


OTHER_ARCHITECTURES = {"AlbertForSpan": ["AlbertForQuestionAnswering"], "AlbertForSpanOrNone": []}
OTHER_ARCHITECTURES["AlbertForEmbedding"] = ["AlbertModel"]


@pytest.mark.parametrize("name", sorted(heads.MODEL_CLASSES))
def test_loaded_model_equals_saved_model(name, tmp_path):
    cls = heads.MODEL_CLASSES[name]
    model = make(cls)
    features = features_for(cls)
    save_pretrained(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == OTHER_ARCHITECTURES.get(name, [name])
    loaded = load_pretrained(tmp_path)
    assert type(loaded) is cls
    if cls.hf_architecture not in ("AlbertForPreTraining", "AlbertForQuestionAnswering"):
        # (In these two classes the number of outputs does not depend on the labels.)
        assert loaded.config.labels == LABELS
    for key, variable in model.named_variables().items():
        if (
            not cls.hf_architecture or cls.uses_pooler or "pooler" not in key
        ):  # others have none there
            np.testing.assert_array_equal(loaded.named_variables()[key], variable, err_msg=key)
    for key, value in model(features).items():
        if key != "all_layers":
            np.testing.assert_array_equal(loaded(features)[key], value, err_msg=key)


@pytest.mark.parametrize("name", sorted(heads.MODEL_CLASSES))
def test_the_released_layout_keeps_every_variable(name, tmp_path):
    cls = heads.MODEL_CLASSES[name]
    model = make(cls)
    save_pretrained(model, tmp_path, format="tf1", task={"max_seq_length": 9}, do_lower_case=False)
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-best"))
    assert set(reader.get_variable_to_shape_map()) == set(model.named_variables())
    for key, variable in model.named_variables().items():
        np.testing.assert_array_equal(reader.get_tensor(key), variable, err_msg=key)
    weights = read_weights(str(tmp_path))
    assert (weights.model_class, weights.task_settings) == (name, {"max_seq_length": 9})
    assert weights.do_lower_case is False and weights.config.labels == LABELS


def saved_as_keras(model, folder):
    model.save(folder / "x.keras")
    return tf_keras.models.load_model(folder / "x.keras")


def saved_as_tf(model, folder):
    model.save(folder / "x", save_format="tf")
    return tf_keras.models.load_model(folder / "x")


def cloned(model, folder):
    copy = tf_keras.models.clone_model(model)
    assert not np.allclose(copy.get_weights()[0], model.get_weights()[0])
    copy.set_weights(model.get_weights())
    return copy


def pickled(model, folder):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize(
    "cls, copied",
    [(cls, saved_as_keras) for cls in heads.MODEL_CLASSES.values()]
    + [(heads.AlbertForSequenceClassification, copy) for copy in (cloned, pickled)]
    + [pytest.param(heads.AlbertForSequenceClassification, saved_as_tf, marks=pytest.mark.slow)],
)
def test_keras_saves_and_copies_models(cls, copied, tmp_path):
    model = noisy(make(cls))
    features = features_for(cls)
    expected = model(features)
    for name, value in copied(model, tmp_path)(features).items():
        if name != "all_layers":
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
