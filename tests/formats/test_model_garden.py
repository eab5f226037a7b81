"""TF Model Garden's checkpoints give what its own encoder computes; what is none of its ALBERTs is named.

Covers: checkpoint_files.py.
"""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import yaml
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
PARAMETERS = {
    **SIZES,
    "hidden_activation": "gelu",
    "dropout_rate": 0.1,
    "attention_dropout_rate": 0.2,
    "max_position_embeddings": TINY.max_position_embeddings,
    "initializer_range": 0.02,
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
    expected, found = computed(model, features), ours(features)
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


@pytest.mark.parametrize("name", ["model", "encoder", "items", "trained", "old", "weights"])
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


@pytest.mark.parametrize(
    ("activation", "embedding_width"), [("relu", 7), ("tanh", 7), ("linear", 7), ("gelu", 20)]
)
def test_other_configurations_compute_the_same(tmp_path, activation, embedding_width):
    model = pretrainer(activation, embedding_width=embedding_width)
    tf.train.Checkpoint(**model.checkpoint_items).write(str(tmp_path / "items"))
    changed = {**CONFIG, "embedding_size": embedding_width, "hidden_act": activation}
    (tmp_path / "bert_config.json").write_text(json.dumps(changed))
    assert_same_outputs(load_pretrained(tmp_path / "items"), model, WITH_HEAD)


@pytest.mark.parametrize("name", ["params.yaml", "albert_base.yml", "params.json"])
@pytest.mark.parametrize("depth", [0, 3])
def test_parameters_of_an_experiment_say_the_sizes(alone, name, depth):
    values = {"type": "albert", "albert": PARAMETERS, "bert": {"num_layers": 9}}
    for key in ["encoder", "model", "task"][:depth]:
        values = {key: values, "runtime": {"type": "tpu"}}
    text = json.dumps(values) if name.endswith("json") else yaml.safe_dump(values)
    (alone / name).write_text(text)
    # Files of other programs; the last would be endless if all of its aliases were followed.
    (alone / "a.yaml").write_text("type: albert\n- [")
    (alone / "a.json").write_text("{")
    aliases = [f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}" for n in range(1, 60)]
    (alone / "b.yaml").write_text("\n".join(["a0: &a0 {z: 1}", *aliases]))
    weights = pretrained.read_weights(alone / "encoder")
    assert weights.config == TINY.replace(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2)


def test_a_folder_with_one_checkpoint_is_enough(alone):
    (alone / "albert_config.json").write_text(json.dumps(CONFIG))
    (alone / "30k-clean.model").write_bytes(b"pieces")
    weights = pretrained.read_weights(alone)
    assert weights.vocabulary == str(alone / "30k-clean.model")
    assert weights.config.num_hidden_layers == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 5}, r"num_attention_heads is 5, but .*encoder has 4"),
        ({"num_hidden_groups": 3}, "num_hidden_groups is 3, but an AlbertEncoder has 1"),
        ({"inner_group_num": 2}, "inner_group_num is 2, but an AlbertEncoder has 1"),
        ({"vocab_size": 102}, r"word_embeddings has shape \[101, 7\].* wants \[102, 7\]"),
        ({"num_layers": 3}, "unknown key 'num_layers'"),
        ({"num_hidden_layers": None}, "has no num_hidden_layers, .* shape shows; add it"),
        (
            {"num_hidden_layers": None, "num_layers": 3},
            "has no num_hidden_layers, .*; rename num_l",
        ),
        (None, "encoder: expected albert_config.json or the YAML file"),
    ],
)
def test_a_configuration_that_does_not_fit_or_is_missing_is_named(alone, changes, message):
    if changes is not None:
        values = {name: value for name, value in {**CONFIG, **changes}.items() if value is not None}
        (alone / "albert_config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=message) as error:
        load_pretrained(alone / "encoder")
    assert "\n" not in str(error.value)


def other_objects():
    """What else `tf.train.Checkpoint` may hold, and a name that tells what it is."""
    bert = networks.BertEncoder(
        vocab_size=11, hidden_size=8, num_layers=2, num_attention_heads=2, intermediate_size=6
    )
    return {
        "bert": (bert, "embeddings/layer_norm/beta"),
        "ours": (AlbertForPreTraining(TINY), "adam|beta|embeddings"),
        "counter": (tf.Module(), "0 others$"),
    }


@pytest.mark.parametrize("kind", ["bert", "ours", "counter"])
def test_a_checkpoint_of_something_else_says_what_it_is(tmp_path, kind):
    model, shown = other_objects()[kind]
    tf.train.Checkpoint(model=model, step=tf.Variable(1)).write(str(tmp_path / "other"))
    (tmp_path / "albert_config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(UserError, match="other: is not an AlbertEncoder of the TF") as error:
        load_pretrained(tmp_path / "other")
    assert re.search(shown, str(error.value)) and "\n" not in str(error.value)


def test_two_encoders_in_a_checkpoint_are_rejected(garden, tmp_path):
    # As a teacher and a student: their variables have the same names, or the same in two scopes.
    encoder = garden[1].encoder_network
    scoped = tf.Module()
    scoped.all = [tf.Variable(v, name=f"teacher/{v.name[:-2]}") for v in encoder.weights]
    same = tf.Module()
    same.all = [tf.Variable(v, name=v.name[:-2]) for v in encoder.weights]
    (tmp_path / "albert_config.json").write_text(json.dumps(CONFIG))
    for other, message in ((scoped, "more than one variable"), (same, "is not an AlbertEncoder")):
        tf.train.Checkpoint(student=encoder, teacher=other).write(str(tmp_path / "two"))
        with pytest.raises(UserError, match=message):
            load_pretrained(tmp_path / "two")


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
