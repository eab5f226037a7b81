"""The plot of a pretraining run."""

import json

import pytest

from lab.tools import plot_run


def test_a_run_that_is_not_finished_is_plotted(tmp_path):
    curve = {"masked_lm": 0.1, "sentence_order": 0.5}
    line = {f"{name}_{kind}": curve[name] for name in curve for kind in ("accuracy", "loss")}
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 3, **line}) + "\n")
    for losses in (False, True):
        output = tmp_path / f"{losses}.png"
        plot_run.main([str(tmp_path)], str(output), losses=losses)
        assert output.read_bytes().startswith(b"\x89PNG")


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(SystemExit, match="nothere: expected the folder of a pretraining run"):
        plot_run.main([str(tmp_path / "nothere")], str(tmp_path / "x.png"), losses=False)
