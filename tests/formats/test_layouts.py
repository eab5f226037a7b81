"""Every layout by one loop: which is recognized, what is said about paths of none, and what needs TensorFlow."""

import json
import shutil

import pytest

from albert_tf import Tokenizer, UserError
from albert_tf.formats import layouts, tokenizer_files
from albert_tf.model import head_names, heads
from albert_tf.serving.in_graph import graph_tokenizer
from tests.helpers import ROOT, run_script, write_files

MODEL = ROOT / "tests" / "recorded_outputs" / "pretraining"


@pytest.mark.parametrize(
    ("files", "path", "expected"),
    [
        ({}, "hf:albert/albert-base-v2", "hub_names"),
        ({"model.safetensors": "", "checkpoints/step-1.index": ""}, "", "hugging_face"),
        ({"pytorch_model.bin.index.json": ""}, "", "hugging_face"),
        ({"model.safetensors": "", "modules.json": "[{}, {}]"}, "", "sentence_transformers"),
        ({"model.safetensors": "", "modules.json": "[{}]"}, "", "hugging_face"),
        ({"model.safetensors": "", "model.onnx": ""}, "", "hugging_face"),
        ({"assets/export.json": "{}", "saved_model.pb": ""}, "", "saved_model"),
        ({"saved_model.pb": ""}, "", "tf_hub"),
        ({"checkpoints/step-1.index": "", "config.json": "{}"}, "", "run"),
        ({"checkpoints/step-1.index": "", "config.json": "{}"}, "checkpoints/step-1", "run"),
        ({"checkpoints/best/step-1.index": "", "config.json": ""}, "checkpoints/best", "run"),
        ({"checkpoints/step-1.index": ""}, "checkpoints/step-1.index", "tf1"),
        ({"ckpt.index": "_CHECKPOINTABLE_OBJECT_GRAPH"}, "ckpt", "model_garden"),
        ({"ckpt.index": "", "notes.txt": ""}, "", "tf1"),
        ({"model.onnx": "", "export.json": "{}"}, "model.onnx", "exported_files"),
        ({"model.tflite": ""}, "", "exported_files"),
    ],
)
def test_a_path_has_the_layout_of_its_files(files, path, expected, tmp_path):
    write_files(tmp_path, files)
    place = path if ":" in path else str(tmp_path / path)
    assert layouts.layout_of(place).__name__ == f"albert_tf.formats.{expected}"


@pytest.mark.parametrize(
    ("files", "path", "message"),
    [
        ({}, "nothing", "no such model; expected a folder, or the prefix of a checkpoint"),
        ({"a.index": "", "b.index": ""}, "", r"one checkpoint \(\*.index\), found 2 checkpoints"),
        ({"tf_model.h5": ""}, "", "tf_model.h5 is not read; convert it"),
        ({"1/saved_model.pb": "", "2/saved_model.pb": ""}, "", "give one of them, such as .*/2$"),
        (
            {"1/saved_model.pb": ""},
            "",
            r"\(exports of this project and ALBERTs of TF-Hub are read\)",
        ),
        (
            {"config.json": "{}", "model.weights.h5": ""},
            "",
            "a file of Keras, model.weights.h5, which",
        ),
        ({"mine.keras": ""}, "mine.keras", "a file of Keras, which is not read; give the folder"),
        ({"model.onnx": ""}, "model.onnx", "no weights to read; .* the model that was exported"),
        ({"model.tflite": ""}, "model.tflite", "only LiteRT and TensorFlow read a TFLite file"),
    ],
)
def test_a_path_of_no_layout_is_explained_in_one_line(files, path, message, tmp_path):
    write_files(tmp_path, files)
    place = str(tmp_path / path)
    with pytest.raises(UserError, match=message) as error:
        layouts.read_weights(place)
    assert "\n" not in str(error.value)


def test_a_model_folder_is_read_and_described_without_tensorflow(no_tensorflow):
    program = f"""
from albert_tf.formats import layouts
weights = layouts.read_weights({str(MODEL)!r})
length = layouts.describe({str(MODEL)!r}).max_position_embeddings
print(weights.model_class, len(weights.arrays) > 20, length == weights.config.max_position_embeddings)
"""
    done = run_script("-c", program, **no_tensorflow)
    assert done.stdout.split() == ["AlbertForPreTraining", "True", "True"], done.stderr


def test_a_tokenizer_is_read_without_the_weights_of_its_model(tiny_pretrained, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_pretrained, folder)
    (folder / "model.safetensors").write_text("damaged")
    tokenizer = Tokenizer.from_pretrained(folder)
    assert tokenizer.vocabulary() == Tokenizer.from_pretrained(tiny_pretrained).vocabulary()
    assert tokenizer.max_length == 64
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="missing; copy the file again"):
        Tokenizer.from_pretrained(folder)


def test_every_kind_of_vocabulary_has_files_and_operations():
    assert set(Tokenizer.kinds) == set(tokenizer_files._PARTS) == set(graph_tokenizer._MODULES)


def test_the_names_of_heads_are_those_of_the_classes():
    classes = heads.MODEL_CLASSES.items()
    assert {name: cls.hf_architecture for name, cls in classes} == head_names.ARCHITECTURES


def test_an_onnx_export_is_described_by_the_files_beside_it(tmp_path):
    about = {"task": {"max_seq_length": 40}, "do_lower_case": False}
    sizes = {"max_position_embeddings": 64, "finetuning_task": "tsv"}
    files = {"model.onnx": "", "export.json": about, "albert_config.json": sizes}
    write_files(tmp_path, {name: json.dumps(values) for name, values in files.items()})
    for path in (tmp_path, tmp_path / "model.onnx"):
        description = layouts.describe(path)
        assert (description.max_position_embeddings, description.task_name) == (64, "tsv")
        assert description.settings == {"max_seq_length": 40, "do_lower_case": False}
