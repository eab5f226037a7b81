"""A line names what of a file was not used, and what of the model has random values; ordinary uses are silent."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from albert_tf import AlbertEncoder, AlbertForTokenClassification, load_predictor, load_pretrained
from albert_tf.export import export_model
from tests import helpers

HEADS = {"masked-LM head": "predictions.", "sentence-order head": "sop_classifier."}
CRF = {"crf.transitions": np.ones([3, 3], np.float32), "crf.start": np.ones([3], np.float32)}
WITHOUT_CRF = (
    "is read as AlbertForPreTraining, without 2 variables of the checkpoint: 'crf.start, crf.tr"
)


@pytest.fixture
def folder_with(tiny_pretrained, tmp_path):
    """A function that makes a folder of transformers: with further tensors, without those that begin so, of a class."""

    def make(further=(), without=(), architecture="AlbertForPreTraining"):
        folder = shutil.copytree(tiny_pretrained, tmp_path / "model")
        path = folder / "model.safetensors"
        tensors = safetensors.numpy.load_file(path)
        kept = {name: tensors[name] for name in tensors if not name.startswith(tuple(without))}
        safetensors.numpy.save_file({**kept, **dict(further)}, path, {"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        config["architectures"] = [architecture]
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


def test_tensors_that_no_model_has_are_named_by_whoever_uses_the_model(
    folder_with, tmp_path, caplog
):
    folder = folder_with(further=CRF)
    uses = (
        load_pretrained,
        load_predictor,
        lambda path: load_predictor(path, engine="tensorflow"),
        lambda path: export_model(path, tmp_path / "onnx", format="onnx"),
    )
    for use in uses:
        use(folder)
        [line] = caplog.messages
        assert line.startswith(f"{folder}: {WITHOUT_CRF}") and "random" not in line
        caplog.clear()


@pytest.mark.parametrize(
    ("architecture", "lacks", "line"),
    [
        ("AlbertModel", HEADS, "no masked-LM head and no sentence-order head; those of the model"),
        (
            "AlbertModel",
            {**HEADS, "pooler": "albert.pooler."},
            "no pooler and no masked-LM head and no sentence-order head; those of the model have",
        ),
        ("AlbertForMaskedLM", {"head": "sop"}, "no sentence-order head; that of the model has ran"),
    ],
)
def test_parts_of_a_model_without_values_are_named(architecture, lacks, line, folder_with, caplog):
    folder = folder_with(without=lacks.values(), architecture=architecture)
    load_pretrained(folder)
    [found] = caplog.messages
    assert found.startswith(f"{folder}: has {line}")
    caplog.clear()

    # Who asks for an encoder or for a new head, or gets answers alone, hears nothing of heads.
    load_pretrained(folder, model_class=AlbertEncoder)
    load_pretrained(folder, model_class=AlbertForTokenClassification, num_labels=3)
    load_predictor(folder)
    expected = 1 if "pooler" in lacks else 0  # only of the encoder alone: a tagger does not use it
    assert ["has no pooler; that" in found for found in caplog.messages] == [True] * expected


def test_a_fine_tuning_begins_without_a_line_about_heads(folder_with, task_flags, caplog):
    folder = folder_with(further=CRF, without=HEADS.values(), architecture="AlbertModel")
    task = helpers.make_task(*task_flags["mrpc"], f"--init_checkpoint={folder}")
    task.build_model(dtype="float32", recompute_activations=False, seed=1)
    assert task.start.weights.source == str(folder) and "output_weights" in task.initialized
    assert not caplog.messages


def test_buffers_and_copies_of_tensors_are_no_news(tiny_pretrained, folder_with, caplog):
    tensors = safetensors.numpy.load_file(tiny_pretrained / "model.safetensors")
    further = {
        "albert.embeddings.position_ids": np.arange(64)[None],
        "predictions.decoder.weight": tensors["albert.embeddings.word_embeddings.weight"],
        "predictions.decoder.bias": tensors["predictions.bias"],
    }
    load_pretrained(folder_with(further=further))
    assert not caplog.messages
