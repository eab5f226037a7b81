"""The names that users import from `albert_tf`."""

import ast
import importlib
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import AlbertEncoder, UserError
from albert_tf.model import heads
from tests.helpers import ROOT, without_log_level


def test_every_model_class_is_public():
    for name, model_class in heads.MODEL_CLASSES.items():
        assert getattr(albert_tf, name) is model_class


def test_help_describes_every_public_name():
    lines = albert_tf.__doc__.splitlines()
    for name in albert_tf.__all__:
        assert callable(getattr(albert_tf, name))
        assert any(line.split()[:1] == [name] and len(line.split()) > 3 for line in lines), name


def test_type_checkers_see_the_public_names_and_what_they_are():
    stub = ast.parse((ROOT / "albert_tf" / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    found = {}
    for node in imports:
        (alias,) = node.names
        assert alias.asname == alias.name  # otherwise the name is not exported
        found[alias.name] = getattr(importlib.import_module(node.module), alias.name)
    assert found == {name: getattr(albert_tf, name) for name in albert_tf.__all__}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert settings["package-data"]["albert_tf"] == ["py.typed", "*.pyi"]
    assert (ROOT / "albert_tf" / "py.typed").exists()


@pytest.mark.slow
def test_python_use_prints_nothing_of_tensorflow(tiny_pretrained):
    program = f"import albert_tf; print(albert_tf.load_predictor({str(tiny_pretrained)!r}).predict(['anna']))"
    command = [sys.executable, "-c", program]
    process = subprocess.run(
        command, cwd=ROOT, env=without_log_level(), capture_output=True, text=True, timeout=300
    )
    assert process.stderr == ""
    assert process.stdout.startswith("[{'embedding': [")


# --- What models take


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("a text", "a model expects .*; got 'a text'"),
        ({"input_ids": [2, 5, 3]}, r"a model expects .*; got int32 \(3,\)"),
        ({"input_ids": [[2, 5, 3], [2, 3]]}, "a model expects .* all of one length; got"),
        ({"input_ids": np.ones([2, 18], np.int32)}, "18 tokens, but max_position_embeddings is 17"),
        ({"input_ids": [[2, 3]], "input_mask": [[1]]}, "input_mask must have the shape of input"),
    ],
)
@pytest.mark.parametrize("model_class", [AlbertEncoder, heads.AlbertForPreTraining])
def test_inputs_that_are_no_ids_are_rejected_in_one_line(model_class, inputs, message, tiny):
    with pytest.raises(UserError, match=message):
        model_class(tiny)(inputs)


def test_lists_arrays_and_tensors_of_ids_give_the_same_outputs(tiny):
    model = heads.AlbertForPreTraining(tiny, seed=3)
    ids, mask = [[2, 7, 9, 3], [2, 5, 3, 0]], [[1, 1, 1, 1], [1, 1, 1, 0]]
    outputs = [
        model({"input_ids": as_type(ids), "input_mask": as_type(mask)})["pooled_output"].numpy()
        for as_type in (list, np.array, tf.constant)
    ]
    assert np.abs(outputs[0]).max() > 0
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])
