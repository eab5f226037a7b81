"""Models with another number of layers, or that share less, have the values of the layers that they come from."""

import dataclasses
import json

import numpy as np
import pytest

from albert_tf import AlbertForPreTraining, UserError, load_pretrained, save_pretrained
from albert_tf.formats import depth, pretrained
from tests.helpers import BATCH, TINY, make_task, random_features

DEEP = TINY.replace(num_hidden_layers=6)
GROUPS = {"num_hidden_groups": 3}


def saved(folder, changes, format="hf"):
    """A model of six layers on disk."""
    model = AlbertForPreTraining(DEEP.replace(**changes), seed=3)
    save_pretrained(model, folder, format=format)
    return model


@pytest.mark.parametrize(
    ("changes", "num_layers", "num_groups"),
    [
        ({}, 1, 1),
        ({"inner_group_num": 2}, 4, 1),
        ({"num_hidden_groups": 2}, 4, 3),  # 0 0 0 1, which two groups cannot express
        (GROUPS, 5, 3),  # 0 0 1 1 2
        ({"share_parameters": "attention", **GROUPS}, 4, 2),
        ({"share_parameters": "none", "num_hidden_groups": 6}, 4, 1),
    ],
    ids=str,
)
def test_a_cut_model_computes_the_first_layers(tmp_path, changes, num_layers, num_groups):
    whole = saved(tmp_path / "whole", changes)
    cut = load_pretrained(tmp_path / "whole", num_hidden_layers=num_layers)
    assert cut.config.num_hidden_layers == num_layers
    assert cut.config.num_hidden_groups == num_groups
    features = random_features(BATCH)
    num_blocks = num_layers * DEEP.replace(**changes).inner_group_num
    expected = whole(features)["all_layers"][:num_blocks]
    np.testing.assert_array_equal(cut(features)["all_layers"], expected)
    # The number of layers belongs to the model from now on.
    save_pretrained(cut, tmp_path / "cut")
    again = load_pretrained(tmp_path / "cut")
    assert again.config.num_hidden_layers == num_layers
    assert json.loads((tmp_path / "cut/config.json").read_text())["num_hidden_layers"] == num_layers
    np.testing.assert_array_equal(again(features)["sequence_output"], expected[-1])


@pytest.mark.parametrize("num_layers", [2, 9])
def test_a_shared_model_of_any_depth_equals_one_built_with_it(tmp_path, num_layers):
    whole = saved(tmp_path, {}, format="tf1")
    built = AlbertForPreTraining(TINY.replace(num_hidden_layers=num_layers), seed=4)
    for name, variable in built.named_variables().items():
        variable.assign(whole.named_variables()[name])
    loaded = load_pretrained(tmp_path, num_hidden_layers=num_layers)
    features = random_features(BATCH)
    for name, expected in built(features).items():
        np.testing.assert_array_equal(loaded(features)[name], expected, err_msg=name)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"share_parameters": "none"}),
        ({}, {"share_parameters": "attention"}),
        ({}, GROUPS),
        (GROUPS, {"share_parameters": "none"}),
        ({"share_parameters": "ffn", "inner_group_num": 2}, {"share_parameters": "none"}),
    ],
    ids=str,
)
def test_an_untied_model_computes_the_same_with_variables_of_its_own(tmp_path, before, after):
    shared = saved(tmp_path, before)
    config = DEEP.replace(**{**before, "num_hidden_groups": 1, **after})
    untied = AlbertForPreTraining(config, seed=5)
    weights = depth.fitted(pretrained.read_weights(tmp_path), config)
    pretrained.assign_weights(untied.named_variables(), weights)
    assert untied.count_params() > shared.count_params()
    features = random_features(BATCH)
    expected = shared(features)["all_layers"]
    np.testing.assert_array_equal(untied(features)["all_layers"], expected)
    # The other direction would have to give one group the values of several.
    weights = dataclasses.replace(weights, source="untied")
    with pytest.raises(UserError, match="^untied: its (share_parameters|num_hidden_groups) is"):
        depth.fitted(weights, shared.config)


def test_warm_start_spreads_groups_by_depth(tmp_path):
    shallow = AlbertForPreTraining(TINY.replace(num_hidden_layers=2, num_hidden_groups=2), seed=5)
    save_pretrained(shallow, tmp_path)
    deep_config = TINY.replace(num_hidden_layers=8, num_hidden_groups=4)
    weights = depth.stretched(pretrained.read_weights(tmp_path), deep_config)
    deep = AlbertForPreTraining(deep_config, seed=6)
    pretrained.assign_weights(deep.named_variables(), weights)
    ours = deep.named_variables()
    theirs = shallow.named_variables()
    for group, source in enumerate((0, 0, 1, 1)):
        for part in ("attention_1/self/key/kernel", "ffn_1/intermediate/dense/kernel"):
            name = "bert/encoder/transformer/group_{}/inner_group_0/" + part
            np.testing.assert_array_equal(ours[name.format(group)], theirs[name.format(source)])
    with pytest.raises(UserError, match="num_hidden_layers is 2, more than the model's 1"):
        depth.stretched(pretrained.read_weights(tmp_path), TINY.replace(num_hidden_layers=1))
    with pytest.raises(UserError, match="its intermediate_size is 19"):
        depth.stretched(
            pretrained.read_weights(tmp_path), deep_config.replace(intermediate_size=23)
        )


def test_fine_tuning_starts_from_untied_layers_of_another_depth(
    task_flags, tiny_pretrained, tmp_path
):
    runner, flags = task_flags["mrpc"]
    flags = [*flags, f"--output_dir={tmp_path}", "--num_hidden_layers=4"]
    tied, untied = (
        make_task(runner, *flags, *more).build_model(
            dtype="float32", recompute_activations=False, seed=1
        )
        for more in ((), ("--share_parameters=none",))
    )
    assert untied.config.share_parameters == "none" and untied.config.num_hidden_layers == 4
    ids = {"input_ids": random_features(BATCH, vocab_size=50)["input_ids"]}
    expected = load_pretrained(tiny_pretrained, num_hidden_layers=4)(ids)["all_layers"]
    for model in (tied, untied):
        np.testing.assert_array_equal(model.encoder(ids)["all_layers"], expected)
    names = [name for name in untied.named_variables() if "query/kernel" in name]
    assert len(names) == 4
