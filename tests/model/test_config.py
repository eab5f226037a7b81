"""The configuration of the model, and contradictions between settings of a run."""

import json

import pytest

from albert_tf.core.errors import UserError
from albert_tf.model.config import MODEL_SIZES, AlbertConfig

SMALL = {"vocab_size": 30, "embedding_size": 4, "hidden_size": 12, "num_attention_heads": 3}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_attention_heads": 5}, "num_attention_heads"),
        ({"num_hidden_groups": 2, "share_parameters": "none"}, "num_hidden_groups"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob"),
        ({"vocab_size": "30000"}, "vocab_size"),
    ],
)
def test_impossible_values_are_refused_by_name(changes, field):
    with pytest.raises(UserError, match=f"^{field} "):
        AlbertConfig(**{**SMALL, **changes})


def test_a_released_file_is_read_and_written(tmp_path):
    unused = {"down_scale_factor": 1, "net_structure_type": 0, "gap_size": 0}
    released = {**SMALL, **unused, "num_memory_blocks": 0, "hidden_dropout_prob": 0}
    path = tmp_path / "albert_config.json"
    path.write_text(json.dumps(released))
    config = AlbertConfig.from_json_file(path)
    assert config.hidden_size == 12
    assert config.foreign["gap_size"] == 0
    path.write_text(config.to_json_string())
    assert AlbertConfig.from_json_file(path) == config


def test_unknown_keys_of_other_programs_are_kept():
    theirs = {"eos_token_ids": 0, "classifier_dropout": None, "position_embedding_type": "absolute"}
    config = AlbertConfig.from_dict({**SMALL, **theirs})
    assert config.foreign == theirs
    assert AlbertConfig.from_dict(json.loads(config.to_json_string())) == config


def test_the_file_of_a_model_folder_is_read_with_what_transformers_does_not_know(tmp_path):
    path = tmp_path / "config.json"
    # transformers shares nothing within its groups but whole layers, and its "gelu" is the exact one.
    theirs = {**SMALL, "num_hidden_layers": 2, "num_hidden_groups": 2, "hidden_act": "gelu"}
    ours = {"share_parameters": "attention", "num_hidden_groups": 1, "left_out": ["pooler"]}
    path.write_text(json.dumps({**theirs, "albert_tf": ours}))
    config = AlbertConfig.from_json_file(path)
    assert (config.num_hidden_groups, config.share_parameters) == (1, "attention")
    assert config.hidden_act == "gelu_exact"
    assert "albert_tf" not in config.to_dict()
    path.write_text(config.to_json_string())
    assert AlbertConfig.from_json_file(path) == config
    path.write_text(json.dumps({**theirs, "albert_tf": 5}))
    with pytest.raises(UserError, match="expected an object under albert_tf, got 5"):
        AlbertConfig.from_json_file(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"hiden_size": 4}', "unknown key 'hiden_size'; is it hidden_size"),
        ('{"num_attention_heads": 7}', "num_attention_heads must divide"),
    ],
)
def test_wrong_files_are_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "albert_config.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        AlbertConfig.from_json_file(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_versions_1_and_2_differ_only_in_dropout():
    for size in ("base", "large", "xlarge"):
        v1, v2 = (AlbertConfig.from_name(f"albert-{size}-{v}") for v in ("v1", "v2"))
        assert (v1.hidden_dropout_prob, v2.hidden_dropout_prob) == (0.1, 0.0)
        assert v1.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0) == v2
    assert AlbertConfig.from_name("albert-xxlarge-v1").hidden_dropout_prob == 0.0
    with pytest.raises(UserError, match="model must be one of albert-base-v1"):
        AlbertConfig.from_name("albert-huge")


def test_named_sizes_are_table_1():
    table = {
        "base": (12, 768, 12),
        "large": (24, 1024, 16),
        "xlarge": (24, 2048, 16),
        "xxlarge": (12, 4096, 64),
    }
    for size, numbers in table.items():
        config = AlbertConfig.from_name(f"albert-{size}-v2")
        sizes = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
        assert sizes == numbers
        assert config.intermediate_size == 4 * config.hidden_size
        assert config.embedding_size == 128
    assert len(MODEL_SIZES) == 10


def test_layers_are_grouped_as_in_the_original():
    config = AlbertConfig(**SMALL, num_hidden_layers=6, num_hidden_groups=4)
    assert [config.group_of_layer(layer) for layer in range(6)] == [0, 0, 1, 2, 2, 3]
    attention = config.replace(share_parameters="attention", num_hidden_groups=2)
    assert [attention.attention_group_of_layer(layer) for layer in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [attention.ffn_group_of_layer(layer) for layer in range(6)] == [0, 1, 2, 3, 4, 5]
