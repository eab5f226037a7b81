"""Small weights in ONNX files: sums that no processor saturates, shared weights stored once, outputs close to the
model's, and in int8_rows and int4 the same for a text alone and among others."""

import numpy as np
import onnx
import pytest

from albert_tf.export import export_model
from albert_tf.formats import layouts, model_tokenizer, pretrained
from albert_tf.formats.pretrained import weights_of
from albert_tf.model import heads
from albert_tf.serving import onnx_files, quantization
from albert_tf.serving.onnx_model import OnnxModel
from tests.helpers import ROOT, TINY
from tests.serving.conftest import assert_close_to_model, features_of, outputs_of
from tests.serving.test_onnx_files import make

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("num_rows", [6, 7])
def test_pairs_of_weights_do_not_saturate_16_bits(num_rows):
    rng = np.random.default_rng(0)
    kernel = rng.normal(0, 1, (num_rows, 50)).astype(np.float32)
    kernel[:2, 0] = 3.0  # neighbors that are both the largest; no weights
    kernel[:, 1] = 0
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


@pytest.mark.parametrize("width", [7, 16, 40, 77])
def test_half_bytes_are_the_weights_up_to_half_a_step(width):
    rng = np.random.default_rng(1)
    rows = rng.normal(0, 1, (9, width)).astype(np.float32)
    rows[0] = 0
    rows[1] = np.abs(rows[1]) + 3  # far from zero, which still has to be a value
    packed, scale, zero = quantization.in_blocks(rows, 16)
    num_blocks = -(-width // 16)
    assert packed.shape == (9, 8 * num_blocks)
    assert scale.shape == (9, num_blocks)
    assert zero.shape == (9, -(-num_blocks // 2))
    numbers = np.stack([packed & 15, packed >> 4], axis=-1).reshape(9, num_blocks, 16)
    zeros = np.stack([zero & 15, zero >> 4], axis=-1).reshape(9, -1)[:, :num_blocks]
    values = (numbers.astype(int) - zeros.astype(int)[..., None]) * scale[..., None]
    padded = np.pad(rows, ((0, 0), (0, -width % 16))).reshape(values.shape)
    # Numbers and zero points are both rounded.
    assert (np.abs(values - padded) <= 1.01 * scale[..., None]).all()
    assert np.abs(values - padded).mean() < 0.3 * scale.mean()
    assert not values.reshape(9, -1)[:, width:].any()
    assert not values[0].any()


@pytest.mark.parametrize(
    ("width", "largest", "size"),
    [(768, 128, 128), (312, 128, 64), (384, 256, 128), (10, 32, 16), (128, 32, 32), (130, 64, 16)],
)
def test_blocks_pad_little(width, largest, size):
    assert quantization.block_size_for(width, largest) == size


# The operation that computes products of the encoder, and the largest error in parts of the spread of the outputs.
FORMS = {
    "int8": ("MatMulInteger", 0.25),
    "int8_rows": ("MatMulIntegerToFloat", 0.15),
    "int8_weights": ("MatMul", 0.1),
    "int4": ("MatMulNBits", 0.8),
}


@pytest.mark.parametrize("name", sorted(heads.MODEL_CLASSES))
@pytest.mark.parametrize("how", sorted(FORMS))
def test_every_class_in_small_weights_is_close_to_the_model(name, how):
    model = make(name)
    operation, most = FORMS[how]
    contents = onnx_files.convert(weights_of(model), (), how)
    features = features_of(model, 1, 3, TINY.max_position_embeddings)
    for file, content in contents.items():
        assert_close_to_model(model, features, file, content, most)
        graph = onnx.load_from_string(content).graph
        operations = {node.op_type for node in graph.node}
        of_forms = {each for each, _ in FORMS.values()}
        assert operations & of_forms - {"MatMul"} == {operation} - {"MatMul"}
        assert ("GatherBlockQuantized" in operations) == (how == "int4")
        kernels = [each for each in graph.initializer if each.name.endswith("kernel")]
        assert kernels
        types = {onnx.TensorProto.INT8} | ({onnx.TensorProto.UINT8} if how == "int4" else set())
        assert {each.data_type for each in kernels} <= types


WIDE = TINY.replace(
    vocab_size=311,
    embedding_size=64,
    hidden_size=128,
    intermediate_size=256,
    num_attention_heads=4,
    initializer_range=0.2,
)
SAME_WIDTH = {"embedding_size": 128}  # E = H, without a projection


def cosines(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(others, axis=1)
    return (vectors * others).sum(axis=1) / lengths


def assert_close_and_independent(model, features, least: float, how: str, block_size: int) -> None:
    """Checks cosines with the model's vectors, and that each text has the same vector alone and without padding."""
    contents = onnx_files.convert(weights_of(model), (), how, block_size)
    computed = OnnxModel(contents, model.config)
    vectors = computed.outputs("model.onnx", features)["embedding"]
    assert cosines(vectors, outputs_of(model, features, "model.onnx")["embedding"]).min() > least
    for row, mask in enumerate(features["input_mask"]):
        alone = {name: ids[row : row + 1, : mask.sum()] for name, ids in features.items()}
        vector = computed.outputs("model.onnx", alone)["embedding"][0]
        np.testing.assert_allclose(vector, vectors[row], 0, 2e-6 * np.abs(vector).max())


# The weights are random, which is harder for few bits than trained ones.
@pytest.mark.parametrize("changes", [{}, SAME_WIDTH, {"hidden_act": "relu"}], ids=str)
@pytest.mark.parametrize(
    ("how", "block_size", "least"),
    [("int8_rows", 32, 0.996), ("int4", 32, 0.85), ("int4", 64, 0.85), ("int4", 128, 0.85)],
)
def test_a_vector_is_close_and_depends_on_no_other_text(how, block_size, least, changes):
    model = heads.AlbertForEmbedding(WIDE.replace(**changes), seed=5)
    features = features_of(model, 2, 9, TINY.max_position_embeddings)
    features["input_mask"] = np.ones_like(features["input_mask"])
    features["input_mask"][::2, 5:] = 0
    assert_close_and_independent(model, features, least, how, block_size)


def test_a_trained_model_is_close_in_small_weights():
    weights = layouts.read_weights(ROOT / "models/albert-minilm-l6")
    model, _ = pretrained.build_model(weights)
    texts = (
        "A man is playing a large flute.",
        "No.",
        "The heap sorts n values in O(n log n), and needs no further memory for them.",
        "Der Zug nach Basel, 14:32, hat heute zwölf Minuten Verspätung!",
    )
    tokenizer = model_tokenizer.tokenizer_of(weights)
    rows = [[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id] for text in texts]
    length = max(len(row) for row in rows)
    ids = np.full([len(rows), length], tokenizer.pad_id)
    mask = np.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}
    assert_close_and_independent(model, features, 0.995, "int8_rows", 32)
    assert_close_and_independent(model, features, 0.89, "int4", 32)


@pytest.mark.parametrize("changes", [{}, SAME_WIDTH], ids=str)
def test_half_bytes_of_shared_layers_are_stored_once(changes):
    one_layer, twelve_layers = (
        heads.AlbertForPreTraining(WIDE.replace(num_hidden_layers=number, **changes), seed=5)
        for number in (1, 12)
    )
    small = onnx_files.convert(weights_of(one_layer), (), "int4")
    large = onnx_files.convert(weights_of(twelve_layers), (), "int4")
    whole = onnx_files.convert(weights_of(one_layer))
    for file, content in small.items():
        # What more layers add are operations, not weights: a layer has 130,000 of them.
        assert len(large[file]) - len(content) < 11 * 6_000
        assert len(content) < len(whole[file]) / 4


def test_the_export_says_that_int8_depends_on_the_batch(tiny_pretrained, tmp_path, capsys):
    for name in ("int8", "int8_rows"):
        export_model(tiny_pretrained, tmp_path / name, format="onnx", quantization=name)
        has_note = "depends a little on the other texts of its batch" in capsys.readouterr().out
        assert has_note == (name == "int8")
