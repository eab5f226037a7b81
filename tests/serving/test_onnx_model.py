"""ONNX exports as predictors: the answers of the model, without TensorFlow.

Covers: tasks/compiled.py.
"""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from albert_tf import UserError, load_predictor, save_pretrained
from albert_tf.export import export_model
from albert_tf.model import heads
from tests.helpers import ROOT, TINY, WORDS, train_spm

pytest.importorskip("onnxruntime")

TEXT_OF = {
    "AlbertForSequenceClassification": ["anna", "bert\tcarl dora", "emil " * 20],
    "AlbertForPreTraining": ["anna", "bert\tcarl", "emil [MASK] fran", "gert hana"],
    "AlbertForTokenClassification": ["anna bert", "carl"],
    "AlbertForSpanOrNone": [{"question": "anna", "context": "bert carl dora " * 9}],
    "AlbertForEmbedding": ["anna", "bert carl dora"],
    "AlbertForMultipleChoice": [
        {"article": "anna bert", "question": "carl", "options": ["dora", "emil", "fran", "a"]}
    ],
}
SCRIPT = """
import sys
from albert_tf.command import main
try:
    main()
finally:
    heavy = [name for name in ("tensorflow", "tf_keras", "sklearn") if name in sys.modules]
    print(heavy, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A function that gives the folders of a class's model and of its export."""
    folder = tmp_path_factory.mktemp("onnx")
    spm = train_spm(folder / "spm.model", [WORDS] * 9, vocab_size=60)

    def make(name: str):
        model, onnx = folder / name, folder / f"{name}_onnx"
        if not onnx.exists():
            labels = {"AlbertForTokenClassification": ["O", "B-X", "I-X"]}.get(name, "ABCD")
            config = TINY.replace(vocab_size=60, initializer_range=0.2)
            name_of_task = {"AlbertForSequenceClassification": "tsv"}.get(name, "mine")
            built = heads.MODEL_CLASSES[name](
                config.with_labels(list(labels), name_of_task), seed=3
            )
            task = {"max_seq_length": 17, "max_query_length": 5, "doc_stride": 4}
            save_pretrained(built, model, spm_model_file=spm, task=task)
            export_model(str(model), str(onnx), format="onnx")
        return model, onnx

    return make


def assert_close(found, expected) -> None:
    """Equal values, but for the rounding of numbers."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    elif isinstance(expected, float):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    else:
        assert found == expected


@pytest.mark.parametrize("name", sorted(TEXT_OF))
def test_an_export_gives_the_answers_of_its_model(name, exported):
    model, onnx = exported(name)
    expected = load_predictor(model).predict(TEXT_OF[name])
    assert_close(load_predictor(onnx).predict(TEXT_OF[name]), expected)
    assert_close(load_predictor(onnx / "model.onnx").predict(TEXT_OF[name]), expected)


def run_command(*words: str, text: str = "") -> tuple[subprocess.CompletedProcess, str]:
    """A finished `albert-tf`, and which heavy modules it loaded."""
    command = [sys.executable, "-c", SCRIPT, *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT)
    return done, done.stderr.splitlines()[-1]


def test_a_line_is_answered_without_tensorflow(exported):
    _, onnx = exported("AlbertForSequenceClassification")
    done, heavy = run_command("predict", str(onnx / "model.onnx"), text="anna\n")
    assert json.loads(done.stdout)["label"] in "ABCD"
    assert (heavy, done.returncode) == ("[]", 0)


@pytest.mark.parametrize("name", ["folder", "texts.csv"])
def test_what_is_no_model_is_rejected_without_tensorflow(name, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/model.onnx").write_bytes(b"")
    (tmp_path / "texts.csv").write_text("text\nanna\n")
    done, heavy = run_command("predict", str(tmp_path / name), text="anna\n")
    assert (heavy, done.returncode) == ("[]", 1), done.stderr
    assert "expected" in done.stderr


def test_a_file_is_read_in_its_folder_and_a_folder_whatever_its_name(
    exported, tmp_path, monkeypatch
):
    _, onnx = exported("AlbertForSequenceClassification")
    expected = load_predictor(onnx).predict(["anna"])
    folder = tmp_path / "sst2.onnx"
    shutil.copytree(onnx, folder)
    assert load_predictor(folder).predict(["anna"]) == expected
    monkeypatch.chdir(folder)
    assert load_predictor("model.onnx").predict(["anna"]) == expected


def test_the_layers_of_an_export_stay(exported):
    _, onnx = exported("AlbertForEmbedding")
    with pytest.raises(UserError, match="layers of an ONNX export cannot be changed"):
        load_predictor(onnx, num_hidden_layers=1)
