"""TFLite files: the same outputs as their model's, sizes, what is refused."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertForPreTraining, UserError, load_predictor, save_pretrained
from albert_tf.export import export_model
from albert_tf.model import heads
from albert_tf.serving import tflite
from tests.helpers import TINY

LENGTH = 13
# Wide enough that quantization makes a difference, as TFLite leaves small arrays as they are.
CONFIG = TINY.replace(hidden_size=48, intermediate_size=76, initializer_range=0.2)
CLASSIFIER = CONFIG.with_labels(["yes", "no", "perhaps"], "mine")


@pytest.fixture(scope="module")
def classifier():
    return heads.AlbertForSequenceClassification(CLASSIFIER, seed=3)


def features() -> dict[str, np.ndarray]:
    ids = np.random.default_rng(1).integers(0, CONFIG.vocab_size, [1, LENGTH]).astype(np.int32)
    mask = (np.arange(LENGTH) < 9).astype(np.int32)[None]
    segments = (np.arange(LENGTH) > 5).astype(np.int32)[None]
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}


def test_an_encoder():
    model = AlbertForPreTraining(CONFIG, seed=5)
    found = tflite.runner(tflite.convert(model, LENGTH, "none"))(**features())
    expected = model.encoder(features())
    assert found.keys() == {"sequence_output", "pooled_output"}
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name], atol=1e-5)


def test_int8_is_smaller_and_near(classifier):
    whole, small = (tflite.convert(classifier, LENGTH, kind) for kind in ("none", "int8"))
    assert len(small) < 0.75 * len(whole)
    logits = classifier(features())["logits"].numpy()
    difference = np.abs(tflite.runner(small)(**features())["logits"] - logits).max()
    assert 1e-4 < difference < 0.2 * np.ptp(logits)


@pytest.mark.parametrize("has_rare_token", [False, True])
def test_a_row_of_large_numbers_does_not_coarsen_other_rows(has_rare_token):
    # Wide enough that the table is stored as bytes.
    model = AlbertForPreTraining(CONFIG.replace(embedding_size=64), seed=5)
    inputs = features()
    rare = min(set(range(CONFIG.vocab_size)) - set(inputs["input_ids"].ravel()))
    if has_rare_token:
        inputs["input_ids"][0, 3] = rare
    table = model.encoder.embeddings.word_embeddings
    factors = np.where(np.arange(CONFIG.vocab_size) == rare, 3000, 1)
    table.assign(table.numpy() * factors[:, None])

    found = tflite.runner(tflite.convert(model, LENGTH, "int8"))(**inputs)["sequence_output"]
    expected = model.encoder(inputs)["sequence_output"].numpy()
    assert np.abs(found - expected).max() < 0.05 * np.ptp(expected)
    assert model.encoder.embeddings.lookup is tf.gather


@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_the_command_writes_it_with_what_it_needs(tmp_path, capfd, classifier, quantization):
    save_pretrained(classifier, str(tmp_path / "model"), task={"max_seq_length": LENGTH})
    options = {"format": "tflite", "quantization": quantization}
    export_model(str(tmp_path / "model"), str(tmp_path / "out"), **options)
    names = {file.name for file in (tmp_path / "out").iterdir()} - {".lock"}
    assert names == {"model.tflite", "albert_config.json", "export.json"}
    content = (tmp_path / "out/model.tflite").read_bytes()
    assert b"Flex" not in content  # only builtin operations
    (found,) = tflite.runner(content)(**features()).values()
    expected = classifier(features())
    atol = 1e-5 if quantization == "none" else 0.1
    np.testing.assert_allclose(found, expected["logits"], atol=atol)
    about = json.loads((tmp_path / "out/export.json").read_text())
    assert about["task"]["max_seq_length"] == LENGTH
    assert about["quantization"] == quantization
    printed = capfd.readouterr()
    assert not printed.err
    assert "texts of its batch" not in printed.out  # a call answers one text
    with pytest.raises(UserError, match="model.tflite: is there already"):
        export_model(str(tmp_path / "model"), str(tmp_path / "out"), **options)


def test_another_kind_of_model_is_refused(tmp_path):
    model = heads.AlbertForMultipleChoice(CONFIG)
    task = {"max_seq_length": LENGTH, "max_qa_length": 5}
    save_pretrained(model, str(tmp_path / "model"), task=task)
    with pytest.raises(
        UserError, match="for encoders, embeddings and classifiers, not for an AlbertForMult"
    ):
        export_model(str(tmp_path / "model"), str(tmp_path / "out"), format="tflite")
    assert not (tmp_path / "out").exists()


def test_programs_that_do_not_read_a_file_say_so(tmp_path):
    (tmp_path / "model.tflite").write_bytes(b"x")
    for path in (tmp_path, tmp_path / "model.tflite"):
        with pytest.raises(UserError, match="only LiteRT and TensorFlow read a TFLite file"):
            load_predictor(path)
