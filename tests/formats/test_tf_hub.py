"""TF-Hub modules in both formats, and our own exports, give the values of the model in them; nothing of them is run."""

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
from tests.formats.test_model_garden import SIZES, WITH_HEAD, assert_same_outputs, pretrainer
from tests.helpers import TINY, train_spm

v1 = tf.compat.v1


def write_module(folder, model, *, scope="", lower=True):
    """Saves a model as a module of the TF1 format, whose graph writes the file `touched` when it is run."""
    vocabulary = folder.parent / "30k-clean.model"
    vocabulary.write_bytes(b"pieces")
    builder = v1.saved_model.Builder(str(folder))
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    with v1.Graph().as_default(), v1.Session() as session:
        for name, array in arrays.items():
            v1.get_variable(scope + name, initializer=tf.constant(array), use_resource=False)
        asset = tf.constant(str(vocabulary))
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, asset)
        outputs = {"vocab_file": asset, "do_lower_case": tf.constant(lower)}
        outputs = {name: v1.saved_model.build_tensor_info(out) for name, out in outputs.items()}
        signature = v1.saved_model.build_signature_def({}, outputs)
        session.run(v1.global_variables_initializer())
        builder.add_meta_graph_and_variables(
            session,
            set(),
            {"tokenization_info": signature},
            main_op=tf.io.write_file(str(folder.parent / "touched"), "x"),
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
        )
    builder.save()
    (folder / "tfhub_module.pb").write_bytes(b"\x08\x03")  # ModuleDef, format 3


def assert_has_variables_of(folder, model):
    loaded = load_pretrained(folder).named_variables()
    for name, variable in model.named_variables().items():
        np.testing.assert_array_equal(loaded[name], variable, err_msg=name)


@pytest.mark.parametrize("lower", [True, False])
def test_a_tf1_module_has_the_values_of_its_model(tmp_path, lower):
    config = TINY.replace(num_hidden_layers=6, num_hidden_groups=3, hidden_act="relu")
    model = AlbertForPreTraining(config, seed=4)
    folder = tmp_path / "module"
    write_module(folder, model, lower=lower)
    (folder / "assets" / "albert_config.json").write_text(config.to_json_string())
    weights = pretrained.read_weights(folder)
    assert weights.do_lower_case == lower and weights.config.hidden_act == "relu"
    assert weights.vocabulary == str(folder / "assets" / "30k-clean.model")
    assert_has_variables_of(folder, model)
    assert not (tmp_path / "touched").exists()  # nothing was run


def test_a_released_size_needs_no_configuration(tmp_path, monkeypatch):
    """Names may have the scope of a module."""
    monkeypatch.setitem(MODEL_SIZES, "tiny", {**TINY.to_dict(), "vocab_size": 3})
    model = AlbertForPreTraining(TINY, seed=4)
    write_module(tmp_path / "module", model, scope="module/")
    assert_has_variables_of(tmp_path / "module", model)
    other = AlbertForPreTraining(TINY.replace(intermediate_size=21))
    write_module(tmp_path / "other", other)
    with pytest.raises(UserError, match="not a released size; put its albert_config.json into"):
        load_pretrained(tmp_path / "other")


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


@pytest.mark.slow
def test_a_tf2_module_computes_the_same(garden_module):
    folder, model = garden_module
    (folder / "albert_config.json").write_text(TINY.to_json_string())
    weights = pretrained.read_weights(folder)
    assert weights.do_lower_case is True
    assert weights.vocabulary == str(folder / "assets" / "30k-clean.model")
    assert_same_outputs(load_pretrained(folder), model, WITH_HEAD)


@pytest.mark.parametrize("has_heads", [True, False])
def test_an_export_of_ours_comes_back(tmp_path, has_heads):
    words = "a cat, a dog. a house - a tree"
    vocabulary = train_spm(tmp_path / "a.model", [words], model_type="char", hard_vocab_limit=False)
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


@pytest.mark.parametrize("name", ["dense/kernel", "bert/embeddings/word_embeddings"])
def test_a_saved_model_of_another_program_is_one_line_that_says_what_to_give(tmp_path, name):
    module = tf.Module()
    module.weight = tf.Variable(np.ones([4, 3], np.float32), name=name)
    tf.saved_model.save(module, str(tmp_path / "1"))
    with pytest.raises(
        UserError, match="/1: is a SavedModel that is neither .* made from"
    ) as error:
        load_pretrained(tmp_path / "1")
    assert "\n" not in str(error.value)
