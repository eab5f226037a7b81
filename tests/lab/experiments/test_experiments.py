"""The experiments: commands, what is measured, the engine at a scale of seconds, the report."""

import contextlib
import dataclasses
import io
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training import loop
from lab import report
from lab.experiments import columns, declarations, intrinsic, layer_changes, training
from lab.experiments.engine import Engine, result_path
from lab.experiments.training import Trained
from tests.helpers import LENGTH, TINY, random_features, write_records


def test_layer_changes_are_those_computed_by_hand(tmp_path):
    features = random_features(9, seed=5)
    write_records(tmp_path / "none" / "examples.tfrecord", features)
    model = AlbertForPreTraining(TINY.replace(initializer_range=0.3), seed=2)
    found = layer_changes.measure(model, str(tmp_path), 0)

    encoder = model.encoder
    hidden = encoder.projection(
        encoder.embeddings(features["input_ids"], features["segment_ids"])
    ).numpy()
    outputs = encoder(features)["all_layers"]
    states = [hidden, *(output.numpy() for output in outputs)]
    real = features["input_mask"] == 1
    for layer in range(TINY.num_hidden_layers):
        before = states[layer]
        after = states[layer + 1]
        distance = np.sqrt(((after - before) ** 2).sum(-1))
        norms = np.sqrt((before**2).sum(-1)) * np.sqrt((after**2).sum(-1))
        degrees = np.degrees(np.arccos((before * after).sum(-1) / norms))
        expected = {
            "pieces": (distance[real].mean(), degrees[real].mean()),
            "cls": (distance[:, 0].mean(), degrees[:, 0].mean()),
        }
        for positions, values in expected.items():
            got = [found[positions][kind][layer] for kind in ("l2_distance", "degrees")]
            np.testing.assert_allclose(got, values, rtol=1e-4)
    assert found["examples"] == 9
    assert real.sum() < 9 * LENGTH  # there was padding to leave out


def test_intrinsic_numbers_of_a_head_that_says_in_order_to_all(tmp_path):
    model = AlbertForPreTraining(TINY, seed=2)
    model.sentence_order_head.output_weights.assign(tf.zeros([2, TINY.hidden_size]))
    model.sentence_order_head.output_bias.assign([1.0, 0.0])
    every = {}
    for number, name in enumerate(("none", "nsp", "sop", "probe")):
        every[name] = random_features(70, seed=number)
        write_records(tmp_path / name / "examples.tfrecord", every[name])
    found = intrinsic.measure(model, str(tmp_path), {"sop": str(tmp_path / "probe")}, 66, 0)
    for task in ("nsp", "sop"):
        labels = every[task]["next_sentence_labels"][:66]
        assert found[f"{task}_own_head"] == pytest.approx(1 - labels.mean())
        assert found[f"{task}_commonest"] == pytest.approx(max(labels.mean(), 1 - labels.mean()))
        assert found[f"{task}_says_changed"] == 0.0
    assert "nsp_probe" not in found and 0.2 < found["sop_probe"] < 0.8
    labels = every["probe"]["next_sentence_labels"]
    assert found["sop_own_head_held_out"] == pytest.approx(1 - labels.mean())
    assert found["examples"] == {"none": 66, "nsp": 66, "sop": 66, "sop_held_out": len(labels)}

    kept = {name: values[:66] for name, values in every["none"].items()}
    outputs = model(kept)
    weights = kept["masked_lm_weights"]
    hits = (outputs["masked_lm_logits"].numpy().argmax(-1) == kept["masked_lm_ids"]) * weights
    assert found["masked_lm_accuracy"] == pytest.approx(hits.sum() / weights.sum())
    log_probs = tf.nn.log_softmax(outputs["masked_lm_logits"]).numpy()
    right = np.take_along_axis(log_probs, kept["masked_lm_ids"][..., None], -1)[..., 0]
    assert found["masked_lm_loss"] == pytest.approx(
        -(right * weights).sum() / weights.sum(), rel=1e-4
    )
    assert found["masked_pieces"] == int(weights.sum())


@pytest.fixture(scope="module")
def finished(micro, workspace, tmp_path_factory):
    """Results folder and output of an experiment, whose first training was stopped once, as if killed."""
    _, experiment = micro
    trained = Trained(workspace, experiment, experiment.rows[0], 1)
    values = trained.run_values()
    run, optimizer, pretraining = training.settings_of(values, declarations.PRETRAINING)
    stopped = dataclasses.replace(run, stop_after_steps=4)
    loop.run(lambda: PretrainingTask(pretraining, stopped), stopped, optimizer)
    pathlib.Path(trained.run_folder, "results.json").unlink()
    results_dir = str(tmp_path_factory.mktemp("results"))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        Engine(workspace, results_dir).run(experiment, experiment.rows, [1])  # the first seed
    return results_dir, output.getvalue()


def result_of(results_dir: str, micro, row: int) -> dict:
    scale, experiment = micro
    path = result_path(results_dir, experiment, scale.name, experiment.rows[row], 1)
    return json.loads(pathlib.Path(path).read_text())


@pytest.mark.slow
def test_a_killed_run_goes_on(finished, micro):
    results_dir, output = finished
    assert "resumed   at step 4" in output
    measured = result_of(results_dir, micro, 0)["measures"]["pretraining"]
    assert [line["step"] for line in measured["training"]] == [2, 4, 6, 8]
    assert measured["steps"] == 8


def test_the_average_is_the_papers():
    measures = {
        "task squad1.1": {"f1": 89.3, "exact_match": 82.3},
        "task squad2.0": {"f1": 80.0, "exact": 77.1},
        "task mnli": {"accuracy": 0.816},
        "task sst2": {"accuracy": 0.903},
        "task race": {"accuracy": 0.640},
    }
    (average,) = columns.COLUMNS["average"].values({"measures": measures})
    assert round(average, 6) == 80.05  # ALBERT-base of Table 2
    assert columns.COLUMNS["squad2.0"].values({"measures": measures}) == (80.0, 77.1)
    assert columns.COLUMNS["average"].values({"measures": {}}) == ()


@pytest.mark.slow
def test_the_report_is_made_of_the_files(finished, micro):
    results_dir, _ = finished
    scale, experiment = micro
    path = pathlib.Path(report.write_report([experiment], [scale], results_dir))
    text = path.read_text()
    for row in (0, 1):
        measures = result_of(results_dir, micro, row)["measures"]
        accuracy = f"{100 * measures['intrinsic']['masked_lm_accuracy']:.2f}"
        degrees = f"{measures['layer_changes']['pieces']['degrees'][-1]:.1f}"
        (line,) = (
            line
            for line in text.splitlines()
            if line.startswith(f"| {experiment.rows[row].name} |")
        )
        assert accuracy in line and degrees in line
    assert "**too small to judge**" in text and "one seed" in text and "[Data](mine/micro)." in text
    assert (path.parent / "mine" / "micro" / "plot.png").stat().st_size > 5000
    notes = path.parent / "mine" / "micro" / "notes.md"
    notes.write_text("Other rates were tried.\n")
    report.write_report([experiment], [scale], results_dir)
    assert "Other rates were tried." in path.read_text()
    notes.unlink()
    with pytest.raises(UserError, match="no results at scale micro"):
        report.write_report([declarations.read_experiment("table_1")], [scale], results_dir)
