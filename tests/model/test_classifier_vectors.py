"""Classifiers of vectors (`classifier_pooling`): values, packed rows, layouts that keep them and those that cannot."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from albert_tf import UserError, load_pretrained, save_pretrained
from albert_tf.formats.pretrained import read_weights
from albert_tf.model import heads
from albert_tf.model.config import AlbertConfig
from albert_tf.serving import tflite
from tests.helpers import TINY, error_of, noisy, random_features

LABELS = ("no", "perhaps", "yes")
HOW = {
    "pooling": "mean+cls",
    "modules": [
        {"kind": "dense", "size": 11, "activation": "tanh"},
        {"kind": "layer_norm"},
    ],
    "projection_size": 7,
    "normalize": True,
}
# How the vector is made -> the number of its values; the encoder's width is 20.
VECTORS = {"mean": 20, "mean of an embedder": 20, "embedding": 7, "plain embedding": 20}
ROWS = [[2, 0], [4], [1, 5, 3], []]  # which examples are in each packed row
ROW_LENGTH = 34
MOST_EXAMPLES = 5


def config_of(kind: str) -> AlbertConfig:
    foreign = {} if kind in ("mean", "plain embedding") else {"sentence_embedding": HOW}
    pooling = "mean" if kind.startswith("mean") else "embedding"
    return TINY.replace(foreign=foreign).with_labels(LABELS, "moods", pooling=pooling)


def model_of(kind: str) -> heads.AlbertForSequenceClassification:
    return noisy(heads.AlbertForSequenceClassification(config_of(kind), seed=3), 4)


def features_of(number: int = 6, seed: int = 5) -> dict[str, np.ndarray]:
    names = ("input_ids", "input_mask", "segment_ids")
    return {name: random_features(number, seed)[name] for name in names}


def packed(features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same examples in `ROWS`."""
    names = ("input_ids", "segment_ids", "example_numbers", "position_ids")
    rows = {name: np.zeros((len(ROWS), ROW_LENGTH), np.int32) for name in names}
    rows["first_positions"] = np.zeros((len(ROWS), MOST_EXAMPLES), np.int32)
    rows["example_places"] = np.zeros(len(features["input_ids"]), np.int32)
    for row, examples in enumerate(ROWS):
        start = 0
        for place, example in enumerate(examples):
            size = int(features["input_mask"][example].sum())
            tokens = slice(start, start + size)
            for name in ("input_ids", "segment_ids"):
                rows[name][row, tokens] = features[name][example, :size]
            rows["example_numbers"][row, tokens] = place + 1
            rows["position_ids"][row, tokens] = np.arange(size)
            rows["first_positions"][row, place] = start
            rows["example_places"][example] = row * MOST_EXAMPLES + place
            start += size
    return rows


@pytest.mark.parametrize("kind", ["mean", "mean of an embedder", "plain embedding"])
def test_scores_are_those_of_the_mean_of_the_tokens(kind):
    model = model_of(kind)
    if kind == "mean of an embedder":
        assert model.config.sentence_embedding["projection_size"] == 7  # kept, but not used
    features = features_of()
    hidden_BLD = model.encoder(features)["sequence_output"].numpy()
    mask_BL1 = features["input_mask"][:, :, None]
    mean_BD = (hidden_BLD * mask_BL1).sum(axis=1) / mask_BL1.sum(axis=1)
    head = model.head
    expected = mean_BD @ head.output_weights.numpy().T + head.output_bias.numpy()
    np.testing.assert_allclose(model(features)["logits"], expected, atol=1e-5)


def test_scores_are_those_of_the_vectors_of_an_embedder():
    model = model_of("embedding")
    embedder = heads.AlbertForEmbedding(TINY.replace(foreign={"sentence_embedding": HOW}))
    variables = model.named_variables()
    for name, variable in embedder.named_variables().items():
        variable.assign(variables[name])
    features = features_of()
    vectors_BD = embedder(features)["embedding"].numpy()
    np.testing.assert_allclose(np.linalg.norm(vectors_BD, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(model.vectors(features), vectors_BD, atol=1e-6)
    expected = vectors_BD @ model.head.output_weights.numpy().T + model.head.output_bias.numpy()
    np.testing.assert_allclose(model(features)["logits"], expected, atol=1e-5)
    without_mask = {"input_ids": features["input_ids"]}
    expected = embedder(without_mask)["embedding"]
    np.testing.assert_allclose(model.vectors(without_mask), expected, atol=1e-6)


@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("training", [False, True])
def test_packed_examples_have_the_scores_of_the_same_examples_alone(kind, training):
    model = model_of(kind)
    model.head._dropout_rate = 0.0
    alone = model(features_of(), training=training)["logits"].numpy()
    found = model(packed(features_of()), training=training)["logits"].numpy()
    assert np.ptp(alone, axis=0).min() > 0.01
    np.testing.assert_allclose(found, alone, atol=1e-5)


def test_gradients_of_packed_examples_are_those_of_the_same_examples_alone():
    model = model_of("embedding")
    gradients = []
    for features in (features_of(), packed(features_of())):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(model.vectors(features)))
        gradient = tape.gradient(loss, model.encoder.embeddings.word_embeddings)
        gradients.append(tf.convert_to_tensor(gradient).numpy())
    assert np.abs(gradients[0]).max() > 0.01
    np.testing.assert_allclose(gradients[1], gradients[0], atol=1e-5)


@pytest.mark.parametrize("kind", VECTORS)
def test_a_saved_model_is_read_again_and_names_no_class_of_others(kind, tmp_path):
    model = model_of(kind)
    assert model.head.output_weights.shape == (3, VECTORS[kind])
    save_pretrained(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == []
    weights = read_weights(tmp_path)
    assert not any("pooler" in name for name in weights.arrays)
    # transformers 5.24 and sentence-transformers 6 do not load it as a classifier: the shape of the head is wrong.
    # As an AlbertModel, they load the encoder.
    tensors = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    assert tensors["classifier.weight"].shape == (0, 0) and "classifier.bias" not in tensors

    loaded = load_pretrained(tmp_path)
    assert type(loaded) is heads.AlbertForSequenceClassification
    assert loaded.config.classifier_pooling == model.config.classifier_pooling
    features = features_of()
    np.testing.assert_array_equal(loaded(features)["logits"], model(features)["logits"])


def test_a_new_head_is_that_of_the_pooler_again(tmp_path):
    save_pretrained(model_of("embedding"), tmp_path)
    model = load_pretrained(tmp_path, num_labels=4)
    assert model.config.classifier_pooling == "pooler" and model.uses_pooler
    assert model.hf_architecture == "AlbertForSequenceClassification"


@pytest.mark.parametrize("layout", ["tf1", "keras_hub"])
@pytest.mark.parametrize("kind", ["mean", "embedding"])
def test_layouts_that_cannot_say_it_are_not_written(kind, layout, tmp_path):
    line = error_of(save_pretrained, model_of(kind), tmp_path / "model", format=layout)
    assert "vector" in line
    assert not (tmp_path / "model").exists()


def test_a_pooling_that_does_not_exist_is_an_error(tmp_path):
    save_pretrained(model_of("mean"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for value in ("average", 3, ["mean"]):
        config["classifier_pooling"] = value
        (tmp_path / "config.json").write_text(json.dumps(config))
        expected = "classifier_pooling must be one of pooler, mean, embedding; got"
        with pytest.raises(UserError, match=expected):
            load_pretrained(tmp_path)


@pytest.mark.parametrize("kind", ["mean", "embedding"])
def test_tflite_has_the_same_scores(kind):
    model = model_of(kind)
    features = {name: values[:1] for name, values in features_of().items()}
    length = features["input_ids"].shape[1]
    found = tflite.runner(tflite.convert(model, length, "none"))(**features)
    np.testing.assert_allclose(found["logits"], model(features)["logits"], atol=1e-5)


def test_a_bert_keeps_its_classifier_of_vectors(tmp_path):
    foreign = {"sentence_task": "nsp", "sentence_embedding": {"pooling": "lasttoken+max"}}
    sizes = TINY.replace(
        share_parameters="none", embedding_size=20, hidden_act="gelu_exact", foreign=foreign
    )
    config = sizes.with_labels(LABELS, "moods", pooling="embedding")
    model = noisy(heads.AlbertForSequenceClassification(config, seed=3), 4)
    save_pretrained(model, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert (written["model_type"], written["architectures"]) == ("bert", [])
    loaded = load_pretrained(tmp_path)
    features = features_of()
    np.testing.assert_array_equal(loaded(features)["logits"], model(features)["logits"])
