"""The names that users import from `albert_tf`.

Covers: core/quiet.py.
"""

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


def test_windows_gets_one_line():
    code = "import sys; sys.platform = 'win32'; import albert_tf"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert process.stderr.splitlines()[-1].endswith("on Windows, install it in WSL")


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
    ("inputs", "given"),
    [
        ("a text", "'a text'"),
        (np.array(["a", "text"]), "array(['a', 'text'], dtype='<U4')"),
        (None, "None"),
        ([[2, 5, 3]], "[[2, 5, 3]]"),
        ({"ids": [[2, 5, 3]]}, "{'ids': [[2, 5, 3]]}"),
        ({"input_ids": ["a text"]}, "string (1,)"),
        ({"input_ids": [2, 5, 3]}, "int32 (3,)"),
        ({"input_ids": np.zeros([2, 5])}, "float64 (2, 5)"),
        ({"input_ids": [[2, 5, 3], [2, 3]]}, "{'input_ids': [[2, 5, 3], [2, 3]]}"),
    ],
)
@pytest.mark.parametrize("model_class", [AlbertEncoder, heads.AlbertForPreTraining])
def test_inputs_that_are_no_ids_are_refused_in_one_line(model_class, inputs, given, tiny):
    with pytest.raises(UserError) as error:
        model_class(tiny)(inputs)
    message = str(error.value)
    assert message.startswith(
        'a model expects {"input_ids": [[2, 13, 3], ...]}, ids [B, L], as tokenizer(texts)'
    )
    assert "load_predictor(path).predict(texts) takes texts" in message
    assert message.endswith(f"; got {given}")


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
