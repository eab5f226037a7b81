"""int8_calibrated: activations are rounded with scales that were measured on texts."""

import numpy as np
import onnx
import pytest

from albert_tf.formats import layouts, model_tokenizer
from albert_tf.formats.pretrained import weights_of
from albert_tf.model import heads
from albert_tf.serving import calibration, graph_engines, onnx_files
from albert_tf.serving.graph_engines import OnnxRuntime, OpenVino
from albert_tf.serving.onnx_model import OnnxModel
from albert_tf.serving.quantization import Rounding
from lab.small_forms import batches_of
from tests.helpers import ROOT, TINY
from tests.serving.conftest import assert_close_to_model, features_of, outputs_of
from tests.serving.test_onnx_files import make
from tests.serving.test_quantization import WIDE, cosines

pytest.importorskip("onnxruntime")


def contents_of(model, *batches) -> dict[str, bytes]:
    """The files of a model whose scales are measured on batches."""
    weights = weights_of(model)
    return onnx_files.calibrated(weights, (), calibration.roundings_of(weights, (), batches))


def test_rounded_activations_are_multiples_of_the_scale_within_the_range():
    balance = np.array([2.0, 0.5], np.float32)
    rounding = Rounding.between(balance, -1.0, 1.55)
    assert rounding.scale == pytest.approx(0.01)
    assert rounding.zero_point == 100
    activations = np.array([[0.128, -0.2], [-9.0, 9.0], [0.0, 0.001]])
    # 0.064 and -0.4; the ends of the range; 0 exactly
    expected = [[0.06, -0.4], [-1.0, 1.55], [0.0, 0.0]]
    np.testing.assert_allclose(rounding.rounded(activations), expected, atol=1e-9)


def test_a_range_contains_zero():
    balance = np.ones(1, np.float32)
    assert Rounding.between(balance, 2.0, 5.1)[1:] == (pytest.approx(0.02), 0)
    assert Rounding.between(balance, -5.1, -2.0)[1:] == (pytest.approx(0.02), 255)
    assert Rounding.between(balance, 0.0, 0.0)[1:] == (1.0, 0)


@pytest.mark.parametrize("name", sorted(heads.MODEL_CLASSES))
def test_every_class_is_close_to_the_model(name):
    model = make(name)
    features = features_of(model, 1, 3, TINY.max_position_embeddings)
    for file, content in contents_of(model, features).items():
        assert_close_to_model(model, features, file, content, 0.15)


@pytest.mark.parametrize("engine", [OnnxRuntime(), OpenVino("float32", 128)], ids=str)
@pytest.mark.parametrize("num_groups", [1, 3])
def test_a_vector_is_close_and_depends_on_no_other_text(engine, num_groups):
    if not graph_engines.is_installed(engine.name):
        pytest.skip(f"needs {engine.name}")
    config = WIDE.replace(num_hidden_layers=3, num_hidden_groups=num_groups)
    model = heads.AlbertForEmbedding(config, seed=5)
    measured_on, features = (
        features_of(model, seed, 9, TINY.max_position_embeddings) for seed in (7, 2)
    )
    computed = OnnxModel(contents_of(model, measured_on), model.config, engine=engine)
    vectors = computed.outputs("model.onnx", features)["embedding"]
    # The weights are random, which is harder for few bits than trained ones.
    expected = cosines(vectors, outputs_of(model, features)["embedding"])
    assert np.median(expected) > 0.98
    assert expected.min() > 0.95
    for row, mask in enumerate(features["input_mask"]):
        alone = {name: ids[row : row + 1, : mask.sum()] for name, ids in features.items()}
        vector = computed.outputs("model.onnx", alone)["embedding"][0]
        np.testing.assert_allclose(vector, vectors[row], 0, 1e-5 * np.abs(vector).max())


@pytest.mark.slow
def test_a_trained_model_is_close_for_other_texts_than_the_measured_ones():
    weights = layouts.read_weights(ROOT / "models/albert-minilm-l6")
    tokenizer = model_tokenizer.tokenizer_of(weights)
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    sentences = [line for line in lines if len(line) > 60]
    batches = batches_of(tokenizer, sentences[:40], 64, most_tokens=512)
    contents = onnx_files.calibrated(weights, (), calibration.roundings_of(weights, (), batches))
    others = (
        "A man is playing a large flute.",
        "No.",
        "The heap sorts n values in O(n log n), and needs no further memory for them.",
        "Der Zug nach Basel, 14:32, hat heute zwölf Minuten Verspätung!",
    )
    [features] = batches_of(tokenizer, others, 64)
    exact = OnnxModel(onnx_files.convert(weights), weights.config)
    expected = exact.outputs("model.onnx", features)["embedding"]
    for engine in (OnnxRuntime(), OpenVino("float32", 128)):
        if graph_engines.is_installed(engine.name):
            computed = OnnxModel(contents, weights.config, engine=engine)
            near = cosines(computed.outputs("model.onnx", features)["embedding"], expected)
            assert np.median(near) > 0.995
            assert near.min() > 0.97


def test_shared_kernels_are_stored_once_and_each_layer_has_its_scales():
    model = heads.AlbertForEmbedding(WIDE.replace(num_hidden_layers=3), seed=5)
    content = contents_of(model, features_of(model, 1, 4, 17))["model.onnx"]
    graph = onnx.load_from_string(content).graph
    kernels = [each for each in graph.initializer if each.name.endswith("kernel")]
    assert {each.data_type for each in kernels} == {onnx.TensorProto.INT8}
    # A layer: query, key and value, output, and both of the feed-forward block; before them, the projection.
    assert len([each for each in kernels if each.name.startswith("bert/encoder")]) == 7
    scales = [each for each in graph.initializer if each.name.startswith("scale_of_value")]
    # The projection; in each layer those before attention, before its output and before the feed-forward block.
    assert len(scales) == 1 + 3 * 3
    assert len([node for node in graph.node if node.op_type == "QuantizeLinear"]) == 1 + 3 * 3


def test_a_large_channel_does_not_take_the_range_of_the_others():
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 1, (200, 64)).astype(np.float32)
    rows[:, 5] *= 200
    kernel = rng.normal(0, 1, (64, 40)).astype(np.float32)
    kernel[5] /= 200  # so that all channels count
    use = calibration._Activations(["kernel"])
    use.add(rows)
    [rounding] = calibration._roundings(kernel, [use])
    assert rounding.balance_I[5] > 10 * np.median(rounding.balance_I)
    exact = rows @ kernel
    error = np.abs(rounding.rounded(rows) @ (kernel * rounding.balance_I[:, None]) - exact).mean()
    plain = Rounding.between(np.ones(64, np.float32), float(rows.min()), float(rows.max()))
    assert error < 0.1 * np.abs(plain.rounded(rows) @ kernel - exact).mean()


def test_padding_is_not_measured():
    model = heads.AlbertForEmbedding(WIDE, seed=5)
    features = features_of(model, 3, 4, 17)
    features["input_mask"][:, 6:] = 0
    weights = weights_of(model)
    expected = calibration.roundings_of(
        weights, (), [{name: ids[:, :6] for name, ids in features.items()}]
    )
    found = calibration.roundings_of(weights, (), [features])
    for scales, other in zip(found, expected, strict=True):
        assert scales.scale == pytest.approx(other.scale, rel=1e-4)
        np.testing.assert_allclose(scales.balance_I, other.balance_I, 1e-4)
