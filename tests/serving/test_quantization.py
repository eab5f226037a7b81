"""int8 in ONNX files: sums that no processor saturates, shared weights stored once, answers compared with the model's.

Covers: calibration.py.
"""

import json

import numpy as np
import onnx
import pytest

from albert_tf.export import export_model
from albert_tf.model import heads
from albert_tf.serving import calibration, comparison, onnx_files, quantization
from albert_tf.serving.onnx_model import OnnxModel
from tests.helpers import TINY
from tests.serving.conftest import random_texts

pytest.importorskip("onnxruntime")

LABELED = TINY.replace(initializer_range=0.2).with_labels(["yes", "no", "perhaps"], "tsv")


@pytest.mark.parametrize("num_rows", [6, 7])
def test_pairs_of_weights_do_not_saturate_16_bits(num_rows):
    rng = np.random.default_rng(0)
    kernel = rng.normal(0, 1, (num_rows, 50)).astype(np.float32)
    kernel[:2, 0], kernel[:, 1] = 3.0, 0  # neighbors that are both the largest; no weights
    stored, scale = quantization.of_columns(kernel)
    assert stored.dtype == np.int8
    assert stored.shape == kernel.shape
    padded = np.concatenate([stored, np.zeros([num_rows % 2, 50])]).astype(np.int64)
    pairs = 255 * (padded[::2] + padded[1::2])
    assert pairs.min() >= -(2**15)
    assert pairs.max() < 2**15
    assert np.abs(stored * scale - kernel).max() <= scale.max() + 1e-6
    # A single large weight of a column keeps all of the byte.
    assert np.abs(stored).max() > 100


def test_a_range_contains_zero_exactly():
    scale, zero = quantization.of_range(-1.0, 3.0)
    assert (zero - zero) * scale == 0
    assert zero == 64
    assert quantization.of_range(0.5, 2.0)[1] == 0


@pytest.mark.parametrize("name", sorted(heads.MODEL_CLASSES))
@pytest.mark.parametrize(("how", "most"), [("int8", 0.25), ("int8_weights", 0.1)])
def test_every_class_in_bytes_is_close_to_the_model(name, how, most):
    labeled = name in ("AlbertForSequenceClassification", "AlbertForTokenClassification")
    config = LABELED if labeled else TINY.replace(initializer_range=0.2)
    model = heads.MODEL_CLASSES[name](config, seed=3)
    contents = onnx_files.convert(model, (), onnx_files.Precision(how))
    rng = np.random.default_rng(1)
    features = comparison.random_features(model, rng, 3, TINY.max_position_embeddings)
    for file, content in contents.items():
        expected = onnx_files.expected_outputs(model, features, file)
        found = OnnxModel({file: content}, config).outputs(file, features)
        for key, array in found.items():
            if "top" in key:  # close scores may change places
                continue
            usual = expected[key] > -1e20  # the others are not allowed as answers
            spread = max(1.0, float(np.std(expected[key][usual])))
            error = np.sqrt(np.mean(np.square((array - expected[key])[usual]))) / spread
            assert error < most, (key, error)
        stored = {each.name: each for each in onnx.load_from_string(content).graph.initializer}
        kernels = [each for key, each in stored.items() if key.endswith("kernel")]
        assert kernels
        assert all(each.data_type == onnx.TensorProto.INT8 for each in kernels)


@pytest.mark.parametrize(
    ("how", "operations"),
    [
        ("int8", {"QuantizeLinear", "DequantizeLinear"}),
        ("dynamic_int8", {"DynamicQuantizeLinear", "MatMulInteger"}),
        ("int8_weights", {"Cast"}),
    ],
)
def test_the_export_compares_its_answers_with_the_models(
    how, operations, sources, tmp_path, capsys
):
    texts = tmp_path / "texts.txt"  # lines end only at line ends
    texts.write_text("\n".join([*random_texts(1, 40, 9), "the\u2028cat\x85"]), newline="")
    options = {"format": "onnx", "quantization": how, "calibration_file": str(texts)}
    path = export_model(sources("pairs"), str(tmp_path / how), **options)
    number = sum(1 for line in texts.read_text().split("\n") if line.strip())
    first, second, *_ = capsys.readouterr().out.splitlines()[-3:]
    assert f" of {number} answers changed" in first + second
    assert operations <= {node.op_type for node in onnx.load(path).graph.node}
    about = json.loads((tmp_path / how / "export.json").read_text())
    assert about["quantization"] == how


def test_ranges_are_those_of_every_layer():
    model = heads.AlbertForSequenceClassification(LABELED, seed=3)
    observing = onnx_files.convert(model, (), onnx_files.Precision(observes=True))
    observer = calibration.Observer(observing, model.config)
    features = comparison.random_features(model, np.random.default_rng(0), 2, 7)
    outputs = observer(features)
    assert outputs.keys() == {"logits"}
    query = next(name for name in observer.ranges if name.endswith("query/kernel:1"))
    first_layer = model.encoder(features)["all_layers"][0].numpy()
    np.testing.assert_allclose(observer.ranges[query], (first_layer.min(), first_layer.max()), 1e-4)


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({"label": "a", "probability": 0.6}, {"label": "a", "probability": 0.9}, False),
        ({"label": "a", "probability": 0.6}, {"label": "b", "probability": 0.6}, True),
        ({"score": 1.0}, {"score": 1.05}, False),
        ({"score": 1.0}, {"score": 1.2}, True),
        ({"embedding": [1.0, 0.0]}, {"embedding": [1.0, 0.01]}, False),
        ({"embedding": [1.0, 0.0]}, {"embedding": [1.0, 0.5]}, True),
        (
            {"entities": [{"label": "X", "start": 0, "end": 4, "probability": 0.9}]},
            {"entities": [{"label": "X", "start": 0, "end": 4, "probability": 0.7}]},
            False,
        ),
    ],
)
def test_what_counts_as_a_changed_answer(before, after, changed):
    assert calibration.is_changed(before, after) is changed


def test_more_changes_than_stated_are_a_warning():
    before = [{"score": float(n)} for n in range(50)]
    after = [{"score": float(n % 7)} for n in range(50)]
    first, warning = calibration.changes(before, after).splitlines()
    assert first == "43 of 50 answers changed" and warning.startswith("WARNING: more than 1%")
    assert calibration.changes(before, [{"score": 9.0}, *before[1:]]) == "1 of 50 answers changed"
