"""Folders for the JavaScript library @huggingface/transformers: names, outputs, and what is rejected.

lab/transformers_js.py runs the library itself.
"""

import json

import numpy as np
import onnxruntime
import pytest

from albert_tf import load_pretrained
from albert_tf.export import export_model
from tests.helpers import error_of
from tests.serving.conftest import features_of

FILES = ["onnx/model.onnx", "onnx/model_quantized.onnx", "onnx/model_q4.onnx"]


def inputs_of(features) -> dict[str, np.ndarray]:
    names = {
        "input_ids": "input_ids",
        "input_mask": "attention_mask",
        "segment_ids": "token_type_ids",
    }
    return {new: features[name].astype(np.int64) for name, new in names.items()}


@pytest.mark.parametrize(
    ("kind", "model_type", "architecture", "outputs"),
    [
        ("pretrained", "albert", "AlbertForMaskedLM", ["logits"]),
        ("embedder", "albert", "AlbertModel", ["sentence_embedding", "last_hidden_state"]),
        ("pairs", "albert", "AlbertForSequenceClassification", ["logits"]),
        ("vectors", "albert", "AlbertForSequenceClassification", ["logits"]),
        ("tags", "bert", "BertForTokenClassification", ["logits"]),
        ("span", "albert", "AlbertForQuestionAnswering", ["start_logits", "end_logits"]),
    ],
)
def test_the_files_have_the_names_that_the_library_reads(
    sources, tmp_path, kind, model_type, architecture, outputs
):
    export_model(sources(kind), tmp_path, format="transformers_js")
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == (model_type, [architecture])
    assert (tmp_path / "tokenizer.json").exists() and (tmp_path / "tokenizer_config.json").exists()
    for name in FILES:
        session = onnxruntime.InferenceSession(tmp_path / name)
        assert [output.name for output in session.get_outputs()] == outputs


def test_the_vectors_of_an_embedder_are_among_the_outputs(sources, tmp_path):
    export_model(sources("embedder"), tmp_path, format="transformers_js")
    model = load_pretrained(sources("embedder"))
    features = features_of(model, 3, 5, 7)
    names = ["sentence_embedding", "last_hidden_state"]
    session = onnxruntime.InferenceSession(tmp_path / "onnx/model.onnx")
    vectors, hidden = session.run(names, inputs_of(features))
    np.testing.assert_allclose(vectors, model(features)["embedding"], rtol=0, atol=2e-6)
    expected = model.encoder(features)["sequence_output"].numpy()
    is_token = features["input_mask"] == 1
    np.testing.assert_allclose(hidden[is_token], expected[is_token], rtol=0, atol=1e-5)


def test_models_that_the_library_has_not_are_one_line(sources, tmp_path):
    for kind in ("choices", "span_or_none"):
        message = error_of(export_model, sources(kind), tmp_path, format="transformers_js")
        assert message.startswith("--format=transformers_js: AlbertFor"), message
    options = {"format": "transformers_js", "output_file": "a"}
    assert "--output_file" in error_of(export_model, sources("pairs"), tmp_path, **options)
