"""Rows that are cut from another one, and early exit, at a scale of seconds."""

import json
import pathlib

import numpy as np
import pytest
from msgspec.structs import replace

from lab.experiments import columns, declarations, depths, early_exit, report
from lab.experiments.engine import Engine, result_path
from lab.experiments.preparation import Workspace
from tests.helpers import MICRO, label_of, sentence, write_files
from tests.lab.experiments.test_experiments import run_quietly

DEPTHS = {24: 3, 12: 2, 6: 2, 3: 1}
SCALE = (
    MICRO.replace("{ 1 = 1, 12 = 2 }", json.dumps(DEPTHS).replace(":", " ="))
    + """
[tasks.sst2]
max_seq_length = 20
num_train_steps = 6
train_batch_size = 8
learning_rate = 0.01
num_workers = 1
"""
)


@pytest.fixture(scope="module")
def measured(data_dir, tmp_path_factory):
    """The first row of the experiment and the one cut to a layer: the experiment, its scale, results by row."""
    folder = tmp_path_factory.mktemp("depth")
    rng = np.random.default_rng(5)
    for split, number in (("train", 16), ("dev", 12)):
        texts = [sentence(rng, 2, 6) for _ in range(number)]
        lines = [f"{text}\t{label_of(text) % 2}" for text in texts]
        write_files(data_dir, {f"glue/SST-2/{split}.tsv": "\n".join(["sentence\tlabel", *lines])})
    (folder / "micro.toml").write_text(SCALE)
    scale = declarations.read_scale(str(folder / "micro.toml"))
    experiment = declarations.read_experiment("any_depth")
    experiment = replace(experiment, rows=(experiment.rows[0], experiment.rows[3]), claims=())
    results_dir = str(folder / "results")
    engine = Engine(Workspace(scale, str(data_dir), str(folder / "work")), results_dir)
    run_quietly(engine, experiment, experiment.rows)
    paths = [result_path(results_dir, experiment, "micro", row, 1) for row in experiment.rows]
    results = [json.loads(pathlib.Path(path).read_text()) for path in paths]
    return experiment, scale, results_dir, results


def test_a_cut_row_has_the_scores_of_the_whole_rows_models_at_its_depth(measured):
    whole, cut = (result["measures"] for result in measured[-1])
    assert cut["pretraining"] == whole["pretraining"]
    assert cut["intrinsic"]["masked_lm_loss"] != whole["intrinsic"]["masked_lm_loss"]
    points = whole["early exit sst2"]
    uses = [(point["num_hidden_layers"], point["patience"]) for point in points]
    assert uses == [(1, None), (2, None), (3, None), (3, 2)]
    assert 100 * cut["task sst2"]["accuracy"] == pytest.approx(points[0]["score"], abs=1e-3)
    assert 100 * whole["task sst2"]["accuracy"] == pytest.approx(points[2]["score"], abs=1e-3)
    assert 2 <= points[3]["mean_layers"] <= 3 and points[0]["mean_layers"] == 1
    assert all(point["milliseconds"] > 0 for point in points)


def test_the_time_that_patience_saves_is_without_loss():
    def saved(*rows):
        keys = ("patience", "score", "milliseconds")
        points = [dict(zip(keys, row, strict=True)) for row in rows]
        return columns.COLUMNS["time_saved"].values({"measures": {"early exit sst2": points}})

    fixed = (None, 70.0, 2.0), (None, 80.0, 8.0)
    assert saved(*fixed, (2, 79.0, 4.0), (3, 80.5, 6.0)) == (25.0,)
    assert saved(*fixed, (2, 79.0, 4.0)) == (0.0,)
    assert columns.COLUMNS["time_saved"].values({"measures": {}}) == ()


def test_the_report_draws_both_plots(measured):
    experiment, scale, results_dir, _ = measured
    text = report.scale_report([experiment], scale, results_dir)
    assert "any depth, 3 layers" in text and "% of time saved" in text
    assert (pathlib.Path(results_dir) / "any_depth" / "micro" / "plot.png").stat().st_size > 10_000


def test_a_finished_run_is_measured_in_every_engine(measured, monkeypatch, tmp_path):
    runs = pathlib.Path(measured[2]).parent.glob("work/micro/runs/*/seed-1/tasks/sst2-*")
    layers = {
        json.loads((run / "config.json").read_text())["model"]["num_hidden_layers"]: run
        for run in runs
    }
    write_files(tmp_path, {"page.md": "<!-- table depths -->\n<!-- end -->\n"})
    for name, file in {"RESULTS": "d.json", "PAGE": "page.md", "PICTURE": "d.png"}.items():
        monkeypatch.setattr(depths, name, tmp_path / file)
    depths.main(depths.DepthSettings(runs=f"SST-2={layers[3]}"))
    (points,) = json.loads((tmp_path / "d.json").read_text())["tasks"]["SST-2"]
    scores = {
        (p["engine"], p["num_hidden_layers"]): p["score"] for p in points if not p["patience"]
    }
    assert len(scores) == 9 and len(points) == 10
    for number in (1, 2, 3):
        assert scores["ONNX Runtime", number] == scores["TensorFlow", number]
    lines = (tmp_path / "page.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| SST-2")]
    assert len(rows) == 4 and rows[-1].count("|  |") == 1
    assert list(early_exit.ENGINES)[2] in lines[2] and (tmp_path / "d.png").exists()
