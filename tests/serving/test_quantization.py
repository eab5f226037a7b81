"""int8 in ONNX files: sums that no processor saturates, shared weights stored once, answers compared with the model's.

Covers: calibration.py.
"""

import json
import pathlib

import numpy as np
import onnx
import pytest

from albert_tf import UserError, load_pretrained, save_pretrained
from albert_tf.export import export_model
from albert_tf.model import heads
from albert_tf.serving import calibration, comparison, onnx_files, quantization
from albert_tf.serving.onnx_model import MODEL, OnnxModel
from albert_tf.tasks.metrics import pearson
from tests.helpers import TINY, WORDS, train_spm

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A classifier's folder, `texts.jsonl` with its own answers as labels."""
    folder = tmp_path_factory.mktemp("int8")
    spm = train_spm(folder / "spm.model", [WORDS] * 9, vocab_size=60)
    model = heads.AlbertForSequenceClassification(LABELED.replace(vocab_size=60), seed=3)
    save_pretrained(model, folder / "model", spm_model_file=spm, task={"max_seq_length": 17})
    words = WORDS if isinstance(WORDS, list) else WORDS.split()
    texts = [" ".join(np.random.default_rng(n).choice(words, 1 + n % 9)) for n in range(40)]
    lines = [json.dumps({"text": text, "label": "yes"}) for text in texts]
    (folder / "texts.jsonl").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize("how", ["int8", "dynamic_int8", "int8_weights"])
def test_the_export_compares_its_answers_with_the_models(how, folder, capsys):
    texts = str(folder / "texts.jsonl")
    options = {"format": "onnx", "quantization": how, "calibration_file": texts}
    path = export_model(str(folder / "model"), str(folder / how), **options)
    assert " of 40 answers changed; accuracy " in capsys.readouterr().out
    operations = {node.op_type for node in onnx.load(path).graph.node}
    expected = {
        "int8": {"QuantizeLinear", "DequantizeLinear"},
        "dynamic_int8": {"DynamicQuantizeLinear", "MatMulInteger"},
        "int8_weights": {"Cast"},
    }[how]
    assert expected <= operations
    assert "MatMul" in operations  # of queries and keys
    about = json.loads((folder / how / "export.json").read_text())
    assert about["quantization"] == how


def test_ranges_are_those_of_every_layer(folder):
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
    items = [{"text": "x", "score": n} for n in range(50)]
    first, warning = calibration.Comparison(items, before, after, "texts").lines()
    correlation = pearson(np.arange(50) % 7, np.arange(50))
    assert first.endswith(f"Pearson correlation {correlation:.4f} instead of 1.0000")
    reasons = "more than 1% of the answers changed and the metric lost more than 0.004"
    assert warning.startswith(f"WARNING: {reasons};")


def test_one_changed_answer_of_few_is_no_warning():
    before = [{"label": "a", "probabilities": {"a": 0.6, "b": 0.4}}] * 9
    after = [{"label": "b", "probabilities": {"a": 0.4, "b": 0.6}}, *before[1:]]
    items = [{"text": "x", "label": "a"}] * 9
    lines = calibration.Comparison(items, before, after, "texts").lines()
    assert lines == ["1 of 9 answers changed; accuracy 0.8889 instead of 1.0000"]


@pytest.mark.parametrize(
    ("answer", "truth", "message"),
    [
        ({"score": 0.5}, "high", "texts: text 2: score must be a number, got 'high'"),
        ({"score": 0.5}, None, "text 2: score must be a number, got None"),
        ({"label": "1", "probabilities": {"0": 0.1, "1": 0.9}}, "2", "expected one of 0, 1, got"),
    ],
)
def test_a_truth_that_cannot_be_is_named(answer, truth, message):
    key = next(iter(answer))
    items = [{"text": "x", key: answer[key]}, {"text": "x", key: truth}]
    with pytest.raises(UserError, match=message):
        calibration.Comparison(items, [answer] * 2, [answer] * 2, "texts").lines()


def test_labels_may_be_numbers_in_the_file():
    answers = [{"label": "1", "probabilities": {"0": 0.1, "1": 0.9}}] * 4
    items = [{"text": "x", "label": int(n > 0)} for n in range(4)]
    (line,) = calibration.Comparison(items, answers, answers, "texts").lines()
    assert line.endswith("accuracy 0.7500 instead of 0.7500")


def test_the_difference_is_that_of_the_written_files_and_lines_end_only_at_line_ends(
    folder, capsys
):
    texts = folder / "few.txt"
    texts.write_text("anna\u2028bert\ncarl\x85dora\r\n", newline="")
    options = {"format": "onnx", "quantization": "int8", "calibration_file": str(texts)}
    path = export_model(str(folder / "model"), str(folder / "few"), **options)
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert " of 2 answers changed" in second
    model = load_pretrained(folder / "model")
    contents = {MODEL: pathlib.Path(path).read_bytes()}
    difference = onnx_files.largest_difference(contents, model)
    assert first.endswith(f"by up to {difference:.1e}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "tflite", "quantization": "int8"}, "is for --format=onnx"),
        ({"quantization": "int8"}, "contradicts --format=saved_model"),
    ],
)
def test_a_quantization_of_another_format_is_rejected(options, message, tmp_path):
    with pytest.raises(UserError, match=message):
        export_model("model", str(tmp_path / "out"), **options)
    assert MODEL not in [file.name for file in tmp_path.iterdir()]
