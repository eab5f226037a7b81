"""Model folders: round trips of every sharing strategy, and strictness."""

import json
import os
import re
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from albert_tf import (
    AlbertForPreTraining,
    UserError,
    load_predictor,
    load_pretrained,
    save_pretrained,
)
from albert_tf.formats import pretrained
from albert_tf.formats.weights import POOLER, encoder_shapes
from albert_tf.model import heads
from tests.helpers import BATCH, TINY, error_of, random_features, write_tf1_checkpoint

CONFIGS = [
    {},
    {"share_parameters": "attention"},
    {"share_parameters": "ffn", "num_hidden_groups": 2},
    {"share_parameters": "none"},
    {"num_hidden_groups": 2, "inner_group_num": 2},
    {"embedding_size": 20, "hidden_act": "relu"},
]


def assert_same_model(first, second):
    assert first.config.replace(foreign={}) == second.config.replace(foreign={})
    for (name, a), b in zip(
        first.named_variables().items(), second.named_variables().values(), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("format", ["hf", "tf1"])
@pytest.mark.parametrize("changes", CONFIGS, ids=str)
def test_a_saved_model_is_loaded_with_the_same_values(tmp_path, format, changes):
    model = AlbertForPreTraining(TINY.replace(**changes), seed=7)
    save_pretrained(model, tmp_path / "model", format=format)
    loaded = load_pretrained(tmp_path / "model")
    assert_same_model(model, loaded)
    features = random_features(BATCH)
    expected = model(features)["masked_lm_logits"]
    np.testing.assert_array_equal(loaded(features)["masked_lm_logits"], expected)


@pytest.mark.parametrize("name", ["num_labels", "num_classes"])
def test_a_pretrained_encoder_gets_a_new_head(tmp_path, name):
    source = AlbertForPreTraining(TINY, seed=1)
    save_pretrained(source, tmp_path / "source")
    model = load_pretrained(tmp_path / "source", **{name: 3})
    assert type(model) is heads.AlbertForSequenceClassification
    for variable, expected in source.encoder.named_variables().items():
        np.testing.assert_array_equal(model.encoder.named_variables()[variable], expected)
    save_pretrained(model, tmp_path / "mine")
    assert_same_model(model, load_pretrained(tmp_path / "mine"))
    assert model.config.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    for wrong in ({name: 0}, {name: -1}, {name: "3"}, {"num_labels": 2, "num_classes": 2}):
        with pytest.raises(UserError, match="whole number of at least 1, and only one of them"):
            load_pretrained(tmp_path / "source", **wrong)


def test_missing_heads_are_reported_not_rejected(tmp_path):
    source = AlbertForPreTraining(TINY, seed=1)
    save_pretrained(source, tmp_path)
    tensors = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in tensors.items() if name.startswith("albert.")}
    safetensors.numpy.save_file(kept, tmp_path / "model.safetensors")
    model = AlbertForPreTraining(TINY, seed=2)
    weights = pretrained.read_weights(tmp_path)
    report = pretrained.assign_weights(model.named_variables(), weights)
    assert len(report.loaded) == len(source.encoder.named_variables())
    assert len(report.initialized) == 7
    assert re.search(r"newly initialized +7  cls/predictions", report.describe("here"))


@pytest.mark.parametrize("format", ["hf", "tf1"])
def test_heads_without_values_are_saved_only_after_training(tmp_path, format):
    source = AlbertForPreTraining(TINY, seed=1)
    untrained = [name for name in source.named_variables() if not name.startswith("bert/e")]
    save_pretrained(source, tmp_path / "first", untrained=untrained)
    model = load_pretrained(tmp_path / "first")
    model.sentence_order_head.output_weights.assign_add(tf.ones([2, 20]))
    save_pretrained(model, tmp_path / "second", format=format)
    kept = pretrained.read_weights(tmp_path / "second").arrays.keys() & {*untrained}
    assert kept == {n for n in untrained if "seq_relationship" in n} != set()


def test_a_checkpoint_is_found_by_prefix_index_and_folder(tmp_path):
    model = AlbertForPreTraining(TINY, seed=3)
    save_pretrained(model, tmp_path / "model", format="tf1")
    for path in ("model/model.ckpt-best", "model/model.ckpt-best.index", "model"):
        assert_same_model(model, load_pretrained(tmp_path / path))
    for other in ("", "nowhere"):
        with pytest.raises(UserError, match=str(tmp_path / other)):
            load_pretrained(tmp_path / other)


def test_optimizer_slots_of_tf1_checkpoints_are_left_out(tmp_path):
    save_pretrained(AlbertForPreTraining(TINY), tmp_path, format="tf1")
    prefix = tmp_path / "model.ckpt-best"
    reader = tf.train.load_checkpoint(str(prefix))
    arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    for slot in ("adam_m", "Momentum", "RMSProp_1"):
        arrays[f"bert/pooler/dense/bias/{slot}"] = np.zeros(20, np.float32)
    arrays["global_step"] = np.array(7, np.int32)
    arrays["extra"] = np.zeros(2, np.float32)
    write_tf1_checkpoint(prefix, arrays)
    weights = pretrained.read_weights(tmp_path)
    report = pretrained.assign_weights(AlbertForPreTraining(TINY).named_variables(), weights)
    assert report.ignored == ["extra"]
    assert re.search(r"ignored +1  extra$", report.describe("here"))


@pytest.mark.parametrize("format", ["hf", "tf1"])
def test_values_that_are_not_finite_are_rejected_by_name(tmp_path, format):
    model = AlbertForPreTraining(TINY)
    bias = model.sentence_order_head.output_bias
    bias.assign([0, np.nan])
    save_pretrained(model, tmp_path, format=format)
    with pytest.raises(UserError, match="cls/seq_relationship/output_bias contains values that"):
        load_pretrained(tmp_path)


def test_a_model_is_not_written_where_an_older_one_would_be_read(tmp_path, caplog):
    older = AlbertForPreTraining(TINY, seed=1)
    embedder = heads.AlbertForEmbedding(TINY, seed=1)
    newer = AlbertForPreTraining(TINY, seed=2)
    for name, first in (("hf", older), ("modules", embedder)):
        save_pretrained(first, tmp_path / name)
    message = "of another model, which would be read instead of this one; remove it, or give anoth"
    for name, format in (("hf", "tf1"), ("modules", "hf"), ("modules", "tf1")):
        assert message in error_of(save_pretrained, newer, tmp_path / name, format)
    assert_same_model(older, load_pretrained(tmp_path / "hf"))

    # Those that are replaced, or read after it.
    save_pretrained(newer, tmp_path / "hf")
    assert_same_model(newer, load_pretrained(tmp_path / "hf"))
    save_pretrained(heads.AlbertForEmbedding(TINY, seed=2), tmp_path / "modules")
    save_pretrained(older, tmp_path / "tf1", "tf1")
    save_pretrained(newer, tmp_path / "tf1")
    assert_same_model(newer, load_pretrained(tmp_path / "tf1"))

    (tmp_path / "hf" / "model.onnx").touch()  # of another program
    save_pretrained(newer, tmp_path / "hf")
    assert not caplog.messages
    (tmp_path / "hf" / "export.json").touch()
    save_pretrained(newer, tmp_path / "hf")
    assert "predictors compute the older model.onnx in it" in caplog.text


@pytest.mark.parametrize("format", ["hf", "tf1"])
@pytest.mark.parametrize("cls", [AlbertForPreTraining, heads.AlbertForSpanOrNone])
def test_a_pooler_without_trained_values_stays_without(tmp_path, cls, format):
    save_pretrained(cls(TINY), tmp_path, format=format, untrained=POOLER)
    weights = pretrained.read_weights(tmp_path)
    assert not set(POOLER) & weights.arrays.keys()
    _, report = pretrained.build_model(weights)
    assert set(report.initialized) == set(POOLER)


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
def test_the_shapes_of_an_encoder_are_known_without_it(changes):
    config = TINY.replace(**changes)
    variables = AlbertForPreTraining(config).encoder.named_variables()
    assert encoder_shapes(config) == {name: tuple(v.shape) for name, v in variables.items()}


@pytest.mark.parametrize("format", ["hf", "tf1"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden_size", 10**6),
        ("intermediate_size", 10**9),
        ("max_position_embeddings", 10**9),
        ("num_hidden_groups", 3),
    ],
)
def test_sizes_that_do_not_fit_the_weights_are_found_before_a_model_is_built(
    tmp_path, monkeypatch, format, name, value
):
    save_pretrained(AlbertForPreTraining(TINY), tmp_path, format)
    path = tmp_path / {"hf": "config.json", "tf1": "albert_config.json"}[format]
    values = json.loads(path.read_text())
    values[name] = value
    values.get("albert_tf", {}).pop("num_hidden_groups", None)
    path.write_text(json.dumps(values))
    monkeypatch.setattr(AlbertForPreTraining, "__init__", None)  # no model of any size
    line = error_of(load_pretrained, tmp_path)
    assert re.search("configuration wants|are not in it|does not belong to an ALBERT of", line)


LFS_POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 908\n"


@pytest.mark.parametrize(
    "name", ["model.safetensors", "pytorch_model.bin", "config.json", "spiece.model"]
)
def test_a_pointer_of_git_lfs_in_a_model_is_named(tmp_path, tiny_pretrained, name):
    folder = tmp_path / "model"
    shutil.copytree(tiny_pretrained, folder)
    if name == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
    (folder / name).write_text(LFS_POINTER)
    line = error_of(load_predictor, folder)
    assert (
        line.startswith(f"{folder / name}: is only a pointer of Git LFS") and "git lfs pull" in line
    )


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "spiece.model"])
@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_a_device_or_pipe_in_place_of_a_models_file_is_not_read(
    tmp_path, tiny_pretrained, name, kind
):
    folder = tmp_path / "model"
    shutil.copytree(tiny_pretrained, folder)
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)  # nobody writes to it: reading would not end
    else:
        (folder / name).symlink_to("/dev/null")
    line = error_of(load_predictor, folder)
    assert line.startswith(f"{folder / name}: expected a regular file, found a {kind}")
