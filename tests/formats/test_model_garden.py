"""TF Model Garden's checkpoints give what its own encoder computes; what is none of its ALBERTs is rejected."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.modeling import tf_utils
from official.nlp.modeling import models, networks

from albert_tf import AlbertForPreTraining, UserError, load_pretrained
from albert_tf.formats import pretrained
from tests.helpers import BATCH, TINY, random_features

# The configuration file of the Garden's converter; it has no groups.
CONFIG = {
    name: value
    for name, value in TINY.to_dict().items()
    if name not in ("share_parameters", "layer_norm_eps")
}
# The same in the words of the Garden (official/nlp/configs/encoders.py).
SIZES = {
    "vocab_size": TINY.vocab_size,
    "embedding_width": TINY.embedding_size,
    "hidden_size": TINY.hidden_size,
    "num_layers": TINY.num_hidden_layers,
    "num_attention_heads": TINY.num_attention_heads,
    "intermediate_size": TINY.intermediate_size,
    "type_vocab_size": TINY.type_vocab_size,
}


def pretrainer(activation="gelu", **changes):
    """The Garden's pretraining model with weights so large that every one of them shows in the outputs."""
    sizes = {**SIZES, "max_sequence_length": TINY.max_position_embeddings, **changes}
    function = tf_utils.get_activation(activation)
    encoder = networks.AlbertEncoder(**sizes, activation=function, dict_outputs=True)
    model = models.BertPretrainerV2(encoder, mlm_activation=function)
    computed(model, random_features(1))  # makes the head's variables
    rng = np.random.default_rng(3)
    for variable in model.weights:
        variable.assign(rng.normal(float("gamma" in variable.name), 0.3, variable.shape))
    return model


def computed(model, features):
    inputs = {
        "input_word_ids": features["input_ids"],
        "input_mask": features["input_mask"],
        "input_type_ids": features["segment_ids"],
    }
    outputs = model.encoder_network(inputs)
    positions = tf.constant(features["masked_lm_positions"])
    logits = model.masked_lm(outputs["sequence_output"], positions)
    return {**outputs, "mlm_logits": logits}


def assert_same_outputs(ours, model, names):
    features = random_features(BATCH, seed=6)
    expected = computed(model, features)
    found = ours(features)
    for name, their_name in names.items():
        assert np.ptp(expected[their_name]) > 1
        np.testing.assert_allclose(found[name], expected[their_name], atol=1e-5, err_msg=name)


ENCODER = {name: name for name in ("sequence_output", "pooled_output")}
WITH_HEAD = {**ENCODER, "masked_lm_logits": "mlm_logits"}


@pytest.fixture(scope="module")
def garden(tmp_path_factory):
    """A folder of one model's checkpoints, as the Garden's programs write them, and the model."""
    folder = tmp_path_factory.mktemp("garden")
    model = pretrainer()
    encoder = model.encoder_network
    optimizer = tf_keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    old = tf_keras.optimizers.legacy.Adam()
    old.apply_gradients([(tf.zeros(v.shape), v) for v in encoder.trainable_variables])
    saved = {
        "model": {"model": encoder},  # the encoder alone, its root of old
        "encoder": {"encoder": encoder, "model": encoder},
        "items": model.checkpoint_items,  # the converter's pretrainer
        "trained": {"model": model, "optimizer": optimizer, "global_step": tf.Variable(7)},
        "old": {"model": encoder, "optimizer": old},
    }
    for name, objects in saved.items():
        tf.train.Checkpoint(**objects).write(str(folder / name))
    encoder.save_weights(str(folder / "weights"))
    (folder / "albert_config.json").write_text(json.dumps(CONFIG))
    return folder, model


@pytest.fixture
def alone(garden, tmp_path):
    """The encoder's checkpoint in a folder of its own, without a configuration."""
    for path in garden[0].glob("encoder.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.mark.parametrize("name", ["model", "items", "trained", "old", "weights"])
def test_a_checkpoint_computes_the_same(garden, name):
    folder, model = garden
    has_head = name in ("items", "trained")
    loaded = load_pretrained(folder / name)
    assert_same_outputs(loaded, model, WITH_HEAD if has_head else ENCODER)
    report = pretrained.assign_weights(
        loaded.named_variables(), pretrained.read_weights(folder / name)
    )
    assert report.ignored == []
    assert len(report.initialized) == (2 if has_head else 7)


def test_the_variables_of_another_head_are_named(garden, alone, caplog):
    folder, model = garden
    head = tf.train.Checkpoint(kernel=tf.Variable(tf.ones([20, 2])))
    checkpoint = tf.train.Checkpoint(encoder=model.encoder_network, head=head)
    (alone / "albert_config.json").write_bytes((folder / "albert_config.json").read_bytes())
    checkpoint.write(str(alone / "encoder"))
    load_pretrained(alone)
    [line] = caplog.messages
    assert "without 1 variables of the checkpoint: 'head/kernel/" in line
    assert "has no masked-LM head and no sentence-order head" in line


@pytest.mark.parametrize(("activation", "embedding_width"), [("relu", 7), ("gelu", 20)])
def test_other_configurations_compute_the_same(tmp_path, activation, embedding_width):
    model = pretrainer(activation, embedding_width=embedding_width)
    tf.train.Checkpoint(**model.checkpoint_items).write(str(tmp_path / "items"))
    changed = {**CONFIG, "embedding_size": embedding_width, "hidden_act": activation}
    (tmp_path / "bert_config.json").write_text(json.dumps(changed))
    assert_same_outputs(load_pretrained(tmp_path / "items"), model, WITH_HEAD)


def test_what_is_no_encoder_of_this_configuration_is_rejected(alone):
    for changes, message in (
        ({"num_attention_heads": 5}, "num_attention_heads is 5, but"),
        ({"num_hidden_groups": 3}, "group_1"),
        ({"vocab_size": 102}, r"word_embeddings has shape \[101, 7\].* wants \[102, 7\]"),
    ):
        (alone / "albert_config.json").write_text(json.dumps({**CONFIG, **changes}))
        with pytest.raises(UserError, match=message):
            load_pretrained(alone / "encoder")
    tf.train.Checkpoint(model=AlbertForPreTraining(TINY)).write(str(alone / "other"))
    with pytest.raises(UserError, match="other: is not an AlbertEncoder of the TF"):
        load_pretrained(alone / "other")


def test_a_step_of_a_run_is_a_model(tmp_path):
    models = {step: AlbertForPreTraining(TINY, seed=step) for step in (100, 200)}
    (tmp_path / "config.json").write_text(json.dumps({"model": TINY.to_dict()}))
    manager = None
    for step, model in models.items():
        checkpoint = tf.train.Checkpoint(model=model, global_step=tf.Variable(step))
        manager = tf.train.CheckpointManager(checkpoint, tmp_path / "checkpoints", 9, None, "step")
        manager.save(checkpoint_number=step)
    for path in ("checkpoints/step-100", "checkpoints/step-100.index"):
        found = load_pretrained(tmp_path / path).named_variables()
        for name, variable in models[100].named_variables().items():
            np.testing.assert_array_equal(found[name], variable)
    with pytest.raises(UserError, match="damaged TF2 checkpoint"):
        (tmp_path / "checkpoints" / "step-100.data-00000-of-00001").write_bytes(b"")
        load_pretrained(tmp_path / "checkpoints" / "step-100")
