"""TF-Hub modules in both formats give what their own graphs compute; nothing of them is run."""

import os
import warnings

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from official.nlp.configs import encoders
from official.nlp.tools import export_tfhub_lib

from albert_tf import AlbertForPreTraining, UserError, load_pretrained, save_pretrained
from albert_tf.export import export_model
from albert_tf.formats import pretrained
from albert_tf.model.config import MODEL_SIZES
from albert_tf.text.tokenizer import Tokenizer
from tests.formats.test_model_garden import (
    SIZES,
    WITH_HEAD,
    assert_same_outputs,
    pretrainer,
)
from tests.helpers import BATCH, TINY, random_features, train_spm

v1 = tf.compat.v1

# --- The original's graph, in its scopes (modeling.py, export_to_tfhub.py) ---


ACTIVATIONS = {
    "gelu": lambda x: (
        x * (0.5 * (1.0 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3)))))
    ),
    "gelu_exact": lambda x: 0.5 * x * (1.0 + tf.math.erf(x / np.sqrt(2.0))),
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
}


def variable(name, shape, mean=0.0):
    return v1.get_variable(
        name,
        shape,
        initializer=v1.random_normal_initializer(mean, 0.3),
        use_resource=False,  # as in TF 1.15
    )


def layer_norm(tensor):
    with v1.variable_scope(None, "LayerNorm", [tensor]):
        shape = [tensor.shape[-1]]
        beta, gamma = variable("beta", shape), variable("gamma", shape, mean=1.0)
        mean, variance = tf.nn.moments(tensor, [-1], keepdims=True)
        return tf.nn.batch_normalization(tensor, mean, variance, beta, gamma, 1e-12)


def dense(tensor, width, name="dense", activation=tf.identity):
    with v1.variable_scope(name):
        kernel, bias = variable("kernel", [tensor.shape[-1], width]), variable("bias", [width])
        return activation(tf.einsum("...H,HO->...O", tensor, kernel) + bias)


def project(tensor, config, name):
    """[B, F, D] -> [B, F, N, H]; the kernel is a matrix that is given another shape."""
    width, heads = config.hidden_size, [config.num_attention_heads, config.head_size]
    with v1.variable_scope(name):
        kernel = tf.reshape(variable("kernel", [width, width]), [width, *heads])
        bias = tf.reshape(variable("bias", [width]), heads)
        return tf.einsum("BFH,HND->BFND", tensor, kernel) + bias


def attend(hidden, mask, config):
    with v1.variable_scope("self"):
        query, key, value = (project(hidden, config, name) for name in ("query", "key", "value"))
        scores = tf.einsum("BFND,BTND->BNFT", query, key) / np.sqrt(config.head_size)
        adder = (1.0 - tf.cast(mask, tf.float32))[:, None, None, :] * -10000.0
        context = tf.einsum("BNFT,BTND->BFND", tf.nn.softmax(scores + adder), value)
    with v1.variable_scope("output"), v1.variable_scope("dense"):
        width, heads = config.hidden_size, [config.num_attention_heads, config.head_size]
        kernel = tf.reshape(variable("kernel", [width, width]), [*heads, width])
        return tf.einsum("BFND,NDH->BFH", context, kernel) + variable("bias", [width])


def block(hidden, mask, config, activation):
    with v1.variable_scope("attention_1"):
        attended = attend(hidden, mask, config)
    hidden = layer_norm(attended + hidden)
    with v1.variable_scope("ffn_1"), v1.variable_scope("intermediate"):
        inner = dense(hidden, config.intermediate_size, activation=activation)
        with v1.variable_scope("output"):
            output = dense(inner, config.hidden_size)
    return layer_norm(output + hidden)


def encoder(ids, mask, types, config, activation):
    """Sequence output, pooled output and word table."""
    with v1.variable_scope("bert"):
        with v1.variable_scope("embeddings"):
            width = config.embedding_size
            table = variable("word_embeddings", [config.vocab_size, width])
            type_table = variable("token_type_embeddings", [config.type_vocab_size, width])
            positions = variable("position_embeddings", [config.max_position_embeddings, width])
            summed = tf.gather(table, ids) + tf.gather(type_table, types)
            hidden = layer_norm(summed + positions[: tf.shape(ids)[1]])
        with v1.variable_scope("encoder"):
            if width != config.hidden_size:
                hidden = dense(hidden, config.hidden_size, "embedding_hidden_mapping_in")
            with v1.variable_scope("transformer", reuse=v1.AUTO_REUSE):
                for layer in range(config.num_hidden_layers):
                    group = f"group_{config.group_of_layer(layer)}"
                    with v1.variable_scope(group), v1.name_scope(f"layer_{layer}"):
                        for inner in range(config.inner_group_num):
                            with v1.variable_scope(f"inner_group_{inner}"):
                                hidden = block(hidden, mask, config, activation)
        with v1.variable_scope("pooler"):
            pooled = dense(hidden[:, 0], config.hidden_size, activation=tf.tanh)
    return hidden, pooled, table


def module_graph(config, activation, vocabulary):
    """Signatures as {name: (inputs, outputs)} of tensors, and the assets."""
    names = ("input_ids", "input_mask", "segment_ids", "mlm_positions")
    tokens = {name: v1.placeholder(tf.int32, [None, None], name) for name in names}
    positions = tokens.pop("mlm_positions")
    hidden, pooled, table = encoder(*tokens.values(), config, activation)
    with v1.variable_scope("cls/predictions"):
        masked = tf.gather(hidden, positions, batch_dims=1)
        with v1.variable_scope("transform"):
            masked = layer_norm(dense(masked, config.embedding_size, activation=activation))
        bias = variable("output_bias", [config.vocab_size])
        mlm_logits = tf.einsum("BPE,VE->BPV", masked, table) + bias
    with v1.variable_scope("cls/seq_relationship"):
        weights = variable("output_weights", [2, config.hidden_size])
        sop_logits = tf.einsum("BD,CD->BC", pooled, weights) + variable("output_bias", [2])
    asset = tf.constant(str(vocabulary), name="vocab_model")
    v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, asset)
    encoded = {"sequence_output": hidden, "pooled_output": pooled}
    return {
        "tokens": (tokens, encoded),
        "sop": (tokens, {**encoded, "sop_log_probs": tf.nn.log_softmax(sop_logits)}),
        "mlm": ({**tokens, "mlm_positions": positions}, {**encoded, "mlm_logits": mlm_logits}),
        "tokenization_info": (
            {},
            {"vocab_file": asset, "do_lower_case": tf.constant(config.vocab_size == 101)},
        ),
    }


def write_module(folder, config):
    """Saves a module in the TF1 hub format; returns what its own graph gives.

    Its graph also has an operation that writes the file `touched` when it is loaded to be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = folder.parent / "30k-clean.model"
    vocabulary.write_bytes(b"pieces")
    features = random_features(BATCH, seed=6)
    features["mlm_positions"] = features["masked_lm_positions"]
    builder = v1.saved_model.Builder(str(folder / "module"))
    for tags in ({"train"}, set()):
        with v1.Graph().as_default(), v1.Session() as session:
            v1.set_random_seed(5)
            activation = ACTIVATIONS[config.hidden_act]
            signatures = module_graph(config, activation, vocabulary)
            session.run(v1.global_variables_initializer())
            definitions = {
                name: v1.saved_model.build_signature_def(
                    tensor_infos(inputs), tensor_infos(outputs)
                )
                for name, (inputs, outputs) in signatures.items()
            }
            write = tf.io.write_file(str(folder / "touched"), "x")
            options = {
                "main_op": write,
                "assets_collection": v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
                "strip_default_attrs": True,
            }
            if tags:
                builder.add_meta_graph_and_variables(session, tags, definitions, **options)
                continue
            builder.add_meta_graph(tags, definitions, **options)
            # The variables that were saved are the first graph's, of the same seed.
            v1.train.Saver().restore(session, str(folder / "module/variables/variables"))
            inputs, outputs = signatures["mlm"]
            fed = {tensor: features[name] for name, tensor in inputs.items()}
            fetched = {**outputs, "sop": signatures["sop"][1]["sop_log_probs"]}
            expected = session.run(fetched, fed)
    builder.save()
    (folder / "module" / "tfhub_module.pb").write_bytes(b"\x08\x03")  # ModuleDef, format 3
    return expected


def tensor_infos(tensors):
    return {name: v1.saved_model.build_tensor_info(tensor) for name, tensor in tensors.items()}


TF1_CONFIGS = {
    "plain": TINY,
    "groups": TINY.replace(num_hidden_layers=6, num_hidden_groups=3, inner_group_num=2),
    "same_width": TINY.replace(embedding_size=20, vocab_size=103),
    **{name: TINY.replace(hidden_act=name) for name in ("relu", "tanh", "linear")},
}


def assert_gives(folder, expected):
    features = random_features(BATCH, seed=6)
    outputs = load_pretrained(folder)(features)
    found = {
        "sequence_output": outputs["sequence_output"],
        "pooled_output": outputs["pooled_output"],
        "mlm_logits": outputs["masked_lm_logits"],
        "sop": tf.nn.log_softmax(outputs["sentence_order_logits"]),
    }
    for name, array in found.items():
        assert np.ptp(expected[name]) > 0.5
        np.testing.assert_allclose(array, expected[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", TF1_CONFIGS)
def test_a_tf1_module_computes_the_same(tmp_path, name):
    config = TF1_CONFIGS[name]
    expected = write_module(tmp_path / name, config)
    folder = tmp_path / name / "module"
    (folder / "assets" / "albert_config.json").write_text(config.to_json_string())
    weights = pretrained.read_weights(folder)
    assert weights.do_lower_case == (name != "same_width")
    assert weights.vocabulary == str(folder / "assets" / "30k-clean.model")
    assert_gives(folder, expected)
    assert not (tmp_path / name / "touched").exists()  # nothing was run


def test_a_released_size_needs_no_configuration(tmp_path, monkeypatch):
    """Names may have the scope of a module; another activation than that of the released models is not guessed."""
    monkeypatch.setitem(MODEL_SIZES, "tiny", {**TINY.to_dict(), "vocab_size": 3})
    expected = write_module(tmp_path, TINY)
    folder = tmp_path / "module"
    assert_gives(folder, expected)
    prefix = str(folder / "variables" / "variables")
    reader = tf.train.load_checkpoint(prefix)
    names = list(reader.get_variable_to_shape_map())
    tensors = [reader.get_tensor(name) for name in names]
    names = [f"module/{name}" for name in names]
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
    )
    assert_gives(folder, expected)
    write_module(tmp_path / "relu", TINY.replace(hidden_act="relu"))
    with pytest.raises(UserError, match="not a released size; put its albert_config.json into"):
        load_pretrained(tmp_path / "relu" / "module")


# --- TF2 SavedModels ---


@pytest.fixture(scope="module")
def garden_module(tmp_path_factory):
    """A module that the Garden's own tool exported, and the model in it."""
    folder = tmp_path_factory.mktemp("tf2")
    model = pretrainer()
    prefix = tf.train.Checkpoint(**model.checkpoint_items).save(str(folder / "items"))
    vocabulary = folder / "30k-clean.model"
    vocabulary.write_bytes(b"pieces")
    length = TINY.max_position_embeddings
    parameters = encoders.AlbertEncoderConfig(**SIZES, max_position_embeddings=length)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the Garden about itself
        export_tfhub_lib.export_model(
            str(folder / "module"),
            encoder_config=encoders.EncoderConfig(type="albert", albert=parameters),
            model_checkpoint_path=prefix,
            with_mlm=True,
            sp_model_file=str(vocabulary),
        )
    return folder / "module", model


def test_a_tf2_module_computes_the_same(garden_module):
    folder, model = garden_module
    (folder / "albert_config.json").write_text(TINY.to_json_string())
    weights = pretrained.read_weights(folder)
    assert weights.do_lower_case is True
    assert weights.vocabulary == str(folder / "assets" / "30k-clean.model")
    assert_same_outputs(load_pretrained(folder), model, WITH_HEAD)


# --- Our own exports ---


@pytest.mark.parametrize("has_heads", [True, False])
def test_an_export_of_ours_comes_back(tmp_path, has_heads):
    words = "a cat, a dog. a house - a tree"
    vocabulary = train_spm(
        tmp_path / "words.model", [words], model_type="char", hard_vocab_limit=False
    )
    size = Tokenizer.from_file(vocabulary).vocab_size
    config = TINY.replace(vocab_size=size, num_hidden_layers=1)
    source = AlbertForPreTraining(config, seed=4)
    save_pretrained(source, tmp_path / "source", spm_model_file=vocabulary)
    if not has_heads:
        path = tmp_path / "source" / "model.safetensors"
        tensors = safetensors.numpy.load_file(path)
        kept = {name: array for name, array in tensors.items() if name.startswith("albert.")}
        safetensors.numpy.save_file(kept, path)
    folder = export_model(str(tmp_path / "source"), str(tmp_path))
    weights = pretrained.read_weights(folder)
    assert weights.config == pretrained.read_weights(tmp_path / "source").config
    assert weights.vocabulary == os.path.join(folder, "assets", "spiece.model")
    assert weights.do_lower_case is True
    _, report = pretrained.build_model(weights)
    # The start values of heads that had none are not taken for values.
    assert len(report.initialized) == (0 if has_heads else 7)
    for name, variable in source.named_variables().items():
        if name in report.loaded:
            np.testing.assert_array_equal(weights.arrays[name], variable, err_msg=name)
