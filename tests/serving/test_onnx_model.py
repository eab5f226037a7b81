"""ONNX exports as predictors: the answers of the model, without TensorFlow."""

import functools
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from albert_tf import UserError, load_predictor
from albert_tf.export import export_model
from tests.helpers import ROOT, error_of
from tests.serving.conftest import CLASSES, LABELS, items_of

pytest.importorskip("onnxruntime")

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
def in_onnx(sources, tmp_path_factory):
    """A function that gives the folder of a kind's export."""
    folder = tmp_path_factory.mktemp("onnx")

    @functools.cache
    def export(kind: str) -> pathlib.Path:
        path = export_model(sources(kind), str(folder / kind), format="onnx")
        return pathlib.Path(path).parent

    return export


def assert_close(found, expected) -> None:
    """Equal values, but for the rounding of numbers."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found = list(found.values())
        expected = list(expected.values())
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    elif isinstance(expected, float):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    else:
        assert found == expected


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_an_export_gives_the_answers_of_its_model(kind, sources, in_onnx):
    found, expected = (
        predictor.answered(list(map(predictor.check, items_of(kind))))
        for predictor in (load_predictor(in_onnx(kind)), load_predictor(sources(kind)))
    )
    assert_close(found, expected)


def test_a_file_of_another_name_is_not_taken_for_the_model_beside_it(in_onnx, tmp_path):
    folder = shutil.copytree(in_onnx("embedder"), tmp_path / "export")
    assert load_predictor(folder / "model.onnx").embed("anna").shape
    shutil.copy(folder / "model.onnx", folder / "model_int8.onnx")
    for name in ("model_int8.onnx", "nothing.onnx"):
        message = f"export/{name}: expected a file model.onnx; give it the name model.onnx, in a"
        assert message in error_of(load_predictor, folder / name)


def test_many_batches_are_answered_as_one(in_onnx):
    rng = np.random.default_rng(3)
    texts = [" ".join(["anna"] * number) for number in rng.integers(1, 40, 50)]
    many = load_predictor(in_onnx("embedder"), batch_size=4)
    predictor = load_predictor(in_onnx("embedder"))
    expected = np.concatenate([predictor.embed([text]) for text in texts])
    assert len({*texts}) > 20
    for _ in range(2):  # the second time with the sessions of the first
        np.testing.assert_allclose(many.embed(texts), expected, rtol=1e-4, atol=1e-5)


def run_command(*words: str, text: str = "") -> tuple[subprocess.CompletedProcess, str]:
    """A finished `albert-tf`, and which heavy modules it loaded."""
    command = [sys.executable, "-c", SCRIPT, *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT)
    return done, done.stderr.splitlines()[-1]


def test_a_line_is_answered_without_tensorflow(in_onnx):
    onnx = in_onnx("pairs")
    done, heavy = run_command("predict", str(onnx / "model.onnx"), text="anna\n")
    assert json.loads(done.stdout)["label"] in LABELS["pairs"]
    assert (heavy, done.returncode) == ("[]", 0)


@pytest.mark.parametrize("name", ["folder", "texts.csv"])
def test_what_is_no_model_is_rejected_without_tensorflow(name, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/model.onnx").write_bytes(b"")
    (tmp_path / "texts.csv").write_text("text\nanna\n")
    done, heavy = run_command("predict", str(tmp_path / name), text="anna\n")
    assert (heavy, done.returncode) == ("[]", 1), done.stderr
    assert "expected" in done.stderr


def test_a_file_is_read_in_its_folder_and_a_folder_by_any_name(in_onnx, tmp_path, monkeypatch):
    onnx = in_onnx("pairs")
    expected = load_predictor(onnx).predict(["anna"])
    folder = tmp_path / "sst2.onnx"
    shutil.copytree(onnx, folder)
    assert load_predictor(folder).predict(["anna"]) == expected
    monkeypatch.chdir(folder)
    assert load_predictor("model.onnx").predict(["anna"]) == expected


def test_an_onnx_file_of_another_program_beside_weights_is_not_read(sources, tmp_path):
    expected = load_predictor(sources("embedder")).embed("anna")
    folder = shutil.copytree(sources("embedder"), tmp_path / "model")
    (folder / "model.onnx").write_bytes(b"of another program")
    np.testing.assert_array_equal(load_predictor(folder).embed("anna"), expected)


def test_the_layers_of_an_export_stay(in_onnx):
    onnx = in_onnx("embedder")
    with pytest.raises(UserError, match="layers of an ONNX export cannot be changed"):
        load_predictor(onnx, num_hidden_layers=1)
