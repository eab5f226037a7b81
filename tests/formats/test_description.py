"""What files say about a model without TensorFlow: the same as the model that is read."""

import dataclasses
import json
import pathlib

from albert_tf import save_pretrained
from albert_tf.formats import layouts
from albert_tf.formats.pretrained import build_model, read_weights
from albert_tf.tasks import runner
from albert_tf.tasks.embedding.definition import DEFINITION
from albert_tf.tasks.embedding.settings import EmbeddingConfig
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig
from tests.helpers import write_files


def test_every_layout_of_a_finished_run_says_the_same(finished, tmp_path):
    folder = finished("squad1.1").folder
    weights = read_weights(str(folder))
    tf1 = tmp_path / "tf1"
    task = {"task": weights.task_settings, "do_lower_case": weights.do_lower_case}
    save_pretrained(build_model(weights)[0], tf1, format="tf1", **task)
    export = tmp_path / "export" / "1"  # without the graph
    config = weights.config.to_json_string()
    about = json.dumps(task)
    write_files(export, {"assets/albert_config.json": config, "assets/export.json": about})
    paths = [folder, folder / "model", tf1, tf1 / "model.ckpt-best", tf1 / "model.ckpt-best.index"]
    paths += [export, *sorted((folder / "checkpoints").glob("step-*.index"))]
    assert len(paths) == 7
    for path in paths:
        known = layouts.describe(str(path))
        assert (known.max_position_embeddings, known.task_name) == (64, "squad1.1"), path
        expected = {"max_seq_length": 40, "doc_stride": 13, "max_query_length": 9}
        expected |= {"max_answer_length": 6, "version": "1.1", "do_lower_case": True}
        assert expected.items() <= known.settings.items(), path
        if path == export:  # its export.json is not complete
            continue
        without_arrays = layouts.read_without_arrays(path)
        known_config = without_arrays.config.replace(foreign=weights.config.foreign)
        assert known_config == weights.config and not without_arrays.arrays, path
        assert without_arrays.cleaning == weights.cleaning, path


def test_a_folder_of_sentence_transformers_says_how_it_embeds():
    """Programs take these settings where flags do not give others, so that the model is evaluated as it is."""
    folder = str(pathlib.Path(__file__).parents[2] / "models" / "albert-minilm-l6")
    known = layouts.describe(folder)
    assert known.task_name == "embedding"
    expected = {"max_seq_length": 256, "pooling": "mean", "normalize": True}
    assert expected.items() <= known.settings.items()
    values = {"do_train": False, "init_checkpoint": folder}
    classes = (EmbeddingConfig, FineTuningRunConfig, FineTuningOptimizerConfig)
    flags = {field.name: field.default for cls in classes for field in dataclasses.fields(cls)}
    assert runner.defaults(DEFINITION, {**flags, **values}, set()).items() >= expected.items()
