"""ONNX files: the same outputs as their model's, shared weights stored once, names, what is refused."""

import json

import numpy as np
import onnx
import pytest

from albert_tf import UserError, save_pretrained
from albert_tf.export import export_model
from albert_tf.formats.pretrained import weights_of
from albert_tf.model import heads
from albert_tf.model.pooling import POOLINGS
from albert_tf.model.vector_modules import VECTOR_ACTIVATIONS
from albert_tf.serving import onnx_embedding, onnx_files, onnx_model
from albert_tf.text.tokenizer import Tokenizer
from tests.formats.test_pretrained import CONFIGS
from tests.helpers import ROOT, TINY, train_spm
from tests.serving.conftest import features_of, outputs_of

onnxruntime = pytest.importorskip("onnxruntime")

CONFIG = TINY.replace(initializer_range=0.2)
LABELED = CONFIG.with_labels(["yes", "no", "perhaps"], "mine")
SIZES = [(1, 5), (3, 7), (2, TINY.max_position_embeddings)]
TOLERANCE = 1e-5


def make(name: str = "AlbertForSequenceClassification", **changes):
    labeled = name in ("AlbertForSequenceClassification", "AlbertForTokenClassification")
    config = (LABELED if labeled else CONFIG).replace(**changes)
    return heads.MODEL_CLASSES[name](config, seed=3)


def in_onnxruntime(content: bytes):
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


def in_openvino(content: bytes):
    openvino = pytest.importorskip("openvino")
    options = {"INFERENCE_PRECISION_HINT": "f32"}  # by default it computes in bfloat16 where it can
    core = openvino.Core()
    model = core.compile_model(core.read_model(content), "CPU", options)
    names = [output.name for output in onnx.load_from_string(content).graph.output]

    def run(inputs):
        outputs = model(inputs)
        return {name: outputs[name] for name in names}

    return run


def assert_same_outputs(model, runtime=in_onnxruntime) -> None:
    for file, content in onnx_files.convert(weights_of(model)).items():
        run = runtime(content)
        for batch, length in SIZES:
            features = features_of(model, length, batch, length)
            expected = outputs_of(model, features, file)
            found = run(onnx_model.inputs_of(features))
            assert found.keys() == expected.keys()
            for name, array in expected.items():
                assert found[name].shape == array.shape
                np.testing.assert_allclose(found[name], array, 0, TOLERANCE, err_msg=name)


@pytest.mark.parametrize("runtime", [in_onnxruntime, in_openvino])
@pytest.mark.parametrize("name", sorted(heads.MODEL_CLASSES))
def test_every_class_has_its_outputs_at_any_batch_and_length(name, runtime):
    assert_same_outputs(make(name), runtime)


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
def test_every_sharing_strategy(changes):
    model = make(**changes)
    assert_same_outputs(model)
    (content,) = onnx_files.convert(weights_of(model)).values()
    constants = onnx.load_from_string(content).graph.initializer
    shapes = {constant.name: tuple(constant.dims) for constant in constants}
    variables = {name: tuple(each.shape) for name, each in model.named_variables().items()}
    # Each variable once, under its released name, whatever the number of layers that use it.
    assert variables.items() <= shapes.items()
    others = shapes.keys() - variables.keys()
    assert all(name.startswith(("number_", "integers_", "first")) for name in others)
    assert len(content) < 4 * model.count_params() + 4000 * (1 + model.config.num_blocks)


def test_every_pooling_and_activation_of_vectors_has_operations_of_onnx():
    assert onnx_embedding.POOLINGS.keys() == POOLINGS.keys()
    assert onnx_embedding.VECTOR_ACTIVATIONS.keys() == VECTOR_ACTIVATIONS.keys()


def test_the_file_says_what_it_is():
    content = onnx_files.convert(weights_of(make("AlbertForMultipleChoice")))["model.onnx"]
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 20)]
    inputs = {
        value.name: [d.dim_param for d in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    dimensions = ["batch", "choices", "length"]
    assert inputs == dict.fromkeys(["input_ids", "attention_mask", "token_type_ids"], dimensions)


def test_what_has_no_values_is_left_out():
    model = make("AlbertForPreTraining")
    both = {"model.onnx", "masked_lm.onnx"}
    outputs = {
        (): (both, ["last_hidden_state", "pooler_output", "sop_logits"]),
        ("cls/seq_relationship/output_bias",): (both, ["last_hidden_state", "pooler_output"]),
    }
    without = ("cls/predictions/output_bias", "bert/pooler/dense/bias")
    outputs[without] = ({"model.onnx"}, ["last_hidden_state"])
    for missing, (files, names) in outputs.items():
        contents = onnx_files.convert(weights_of(model), missing)
        assert contents.keys() == files
        graph = onnx.load_from_string(contents["model.onnx"]).graph
        assert [output.name for output in graph.output] == names


def test_the_command_writes_it_with_what_it_needs(tmp_path, capfd):
    spm = train_spm(tmp_path / "spm.model", ["a cat sat on the mat"] * 9, vocab_size=16)
    model = heads.AlbertForPreTraining(CONFIG.replace(vocab_size=16), seed=3)
    save_pretrained(model, tmp_path / "model", spm_model_file=spm)
    path = export_model(str(tmp_path / "model"), str(tmp_path / "out"), format="onnx")
    assert path == str(tmp_path / "out/model.onnx")
    names = {file.name for file in (tmp_path / "out").iterdir()} - {".lock"}
    beside = {"albert_config.json", "export.json", "spiece.model"}
    assert names == {"model.onnx", "masked_lm.onnx"} | beside
    printed = capfd.readouterr()
    assert "length 17" in printed.out
    assert not printed.err
    about = json.loads((tmp_path / "out/export.json").read_text())
    assert about["model_class"] == "AlbertForPreTraining"
    with pytest.raises(UserError, match="model.onnx: is there already"):
        export_model(str(tmp_path / "model"), str(tmp_path / "out"), format="onnx")


@pytest.mark.parametrize(
    "kind", [pytest.param("SentencePiece", marks=pytest.mark.slow), "WordPiece"]
)
def test_the_example_of_the_guide_gives_the_answer_of_the_model(kind, tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\nit\n[UNK]\n[SEP]\nrains\n.\n[CLS]\n[MASK]\nIt")
    if kind == "SentencePiece":
        path = train_spm(tmp_path / "s.model", ["it rains. a cat sat."] * 9, vocab_size=15)
    tokenizer = Tokenizer.from_file(path, do_lower_case=kind == "SentencePiece")
    model = make(vocab_size=tokenizer.vocab_size)
    save_pretrained(
        model, tmp_path / "model", spm_model_file=tokenizer, task={"max_seq_length": 13}
    )
    export_model(str(tmp_path / "model"), str(tmp_path / "onnx"), format="onnx")
    monkeypatch.chdir(tmp_path)
    guide = (ROOT / "docs" / "guides" / "export.md").read_text().partition("\n## ONNX\n")[2]
    example = guide.partition("```python\n")[2].partition("```")[0]
    found: dict = {}
    exec(example, found)
    ids = [[tokenizer.cls_id, *tokenizer.encode("It rains."), tokenizer.sep_id]]
    assert found["ids"] == ids[0]
    np.testing.assert_allclose(found["logits"], model({"input_ids": ids})["logits"], atol=TOLERANCE)


def test_a_missing_package_is_named_before_anything_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="--format=onnx needs .*: pip install onnx"):
        export_model("no_such_model", str(tmp_path / "out"), format="onnx")
