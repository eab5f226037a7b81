"""int8 in ONNX files: sums that no processor saturates, shared weights stored once, outputs close to the model's."""

import numpy as np
import onnx
import pytest

from albert_tf.model import heads
from albert_tf.serving import onnx_files, quantization
from albert_tf.serving.onnx_model import OnnxModel
from tests.helpers import TINY
from tests.serving.conftest import features_of, outputs_of
from tests.serving.test_onnx_files import make

pytest.importorskip("onnxruntime")


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


@pytest.mark.parametrize("name", sorted(heads.MODEL_CLASSES))
@pytest.mark.parametrize(("how", "most"), [("int8", 0.25), ("int8_weights", 0.1)])
def test_every_class_in_bytes_is_close_to_the_model(name, how, most):
    model = make(name)
    contents = onnx_files.convert(model, (), how)
    features = features_of(model, 1, 3, TINY.max_position_embeddings)
    for file, content in contents.items():
        expected = outputs_of(model, features, file)
        found = OnnxModel({file: content}, model.config).outputs(file, features)
        for key, array in found.items():
            if "top" in key:  # close scores may change places
                continue
            usual = expected[key] > -1e20  # the others are not allowed as answers
            spread = max(1.0, float(np.std(expected[key][usual])))
            error = np.sqrt(np.mean(np.square((array - expected[key])[usual]))) / spread
            assert error < most, (key, error)
        stored = {each.name: each for each in onnx.load_from_string(content).graph.initializer}
        operations = {node.op_type for node in onnx.load_from_string(content).graph.node}
        assert ("MatMulInteger" in operations) == (how == "int8")
        kernels = [each for key, each in stored.items() if key.endswith("kernel")]
        assert kernels
        assert all(each.data_type == onnx.TensorProto.INT8 for each in kernels)
