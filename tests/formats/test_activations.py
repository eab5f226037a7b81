"""Every activation in every format: the same outputs after a round trip, or an error of one line."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError, load_pretrained, save_pretrained
from albert_tf.export import export_model
from albert_tf.formats import pretrained
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.heads import AlbertForSequenceClassification
from tests.helpers import TINY, WORDS, train_spm

IDS = {"input_ids": tf.constant([[2, 13, 7, 3, 0], [2, 5, 44, 9, 3]])}
# The original's, of its function get_activation.
IN_ORIGINAL = {"gelu", "relu", "tanh", "linear"}


@pytest.fixture(scope="module")
def spm(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("spm") / "spiece.model"
    return train_spm(path, [f"{WORDS} ,"], vocab_size=60)


def classifier(activation: str) -> AlbertForSequenceClassification:
    config = TINY.replace(
        vocab_size=60, hidden_act=activation, num_hidden_layers=1, initializer_range=0.3
    )
    return AlbertForSequenceClassification(config.with_labels("abc", "letters"), seed=7)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_folders_keep_the_activation(activation, tmp_path):
    model = classifier(activation)
    for format in ("hf", "tf1"):
        if format == "tf1" and activation not in IN_ORIGINAL:
            with pytest.raises(UserError, match=f"hidden_act {activation} .*; write --format=hf"):
                save_pretrained(model, tmp_path / format, format=format)
            assert not (tmp_path / format).exists()
            continue
        save_pretrained(model, tmp_path / format, format=format)
        loaded = load_pretrained(tmp_path / format)
        assert loaded.config.hidden_act == activation
        np.testing.assert_array_equal(loaded(IDS)["logits"], model(IDS)["logits"])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_exports_keep_the_activation(activation, spm, tmp_path):
    model = classifier(activation)
    save_pretrained(model, tmp_path / "model", spm_model_file=spm)
    source = str(tmp_path / "model")
    path = export_model(source, str(tmp_path / "saved_model"))
    assert pretrained.read_weights(path).config.hidden_act == activation
    features = {name: tf.ones_like(IDS["input_ids"]) for name in ("input_mask", "segment_ids")}
    found = tf.saved_model.load(path)(IDS | features)["logits"]
    np.testing.assert_allclose(found, model(IDS | features)["logits"], atol=1e-5)
    for format in ("tflite", "onnx"):  # an export compares the outputs with the model's
        export_model(source, str(tmp_path / format), format=format)
