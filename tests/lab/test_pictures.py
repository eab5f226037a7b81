"""The pictures of the documentation: drawn from committed results, complete, small."""

import collections
import re

import pytest
from matplotlib import pyplot as plt
from matplotlib.text import Text
from PIL import Image

from lab import pictures


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_drawn_and_no_text_leaves_it(name, tmp_path):
    figure = pictures.PICTURES[name]()
    figure.set_dpi(50)
    figure.canvas.draw()
    page = figure.bbox.padded(1)
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text() and text.get_window_extent().width:
            box = text.get_window_extent()
            inside = page.contains(box.x0, box.y0) and page.contains(box.x1, box.y1)
            # Ticks outside the limits are never drawn.
            assert inside or text.axes is None or text in text.axes.get_xticklabels(), text
    pictures.write(figure, tmp_path / "picture.png", dpi=30)
    with Image.open(tmp_path / "picture.png") as picture:
        assert picture.width > 100


def test_committed_pictures_are_those_of_the_program_and_small():
    assert {path.stem for path in pictures.FOLDER.iterdir()} == set(pictures.PICTURES)
    assert max(path.stat().st_size for path in pictures.FOLDER.iterdir()) < 120_000


def test_the_claims_have_the_verdicts_of_the_report():
    judged = pictures.judged_claims()
    words = [verdict.word for label, _, verdict in judged if "(" not in label.partition(":")[0]]
    page = (pictures.EXPERIMENTS / "README.md").read_text().partition("\n# Scale nano")[2]
    expected = re.findall(r"\| \*\*([a-z ]+)\*\* \|", page.partition("\n# Scale")[0])
    assert collections.Counter(words) == collections.Counter(expected)
    assert len(words) > 40


def test_bars_are_the_rates_of_the_table():
    figure = pictures.libraries()
    drawn = {f"{bar.get_width():.3g}" for axes in figure.axes for bar in axes.patches}
    plt.close(figure)
    table = (pictures.SPEED.parent / "table.md").read_text()
    rows = re.findall(r"^\| (?:albert-tf|TF Model|transformers|keras).*\) \| (\S+) \|", table, re.M)
    assert len(drawn) > 15
    assert drawn <= {f"{float(rate.replace(',', '')):.3g}" for rate in rows}


def test_curves_are_means_of_runs_at_common_places():
    def run(minutes, *accuracies):
        lines = [
            {"step": 100 * n, "masked_lm_accuracy": value} for n, value in enumerate(accuracies, 1)
        ]
        return {"steps": 300, "minutes": minutes, "evaluation": lines}

    runs = [run(3.0, 0.1, 0.2, 0.3), run(6.0, 0.3, 0.4, 0.5)]
    x, low, mean, high = pictures.curves(runs, "steps")
    assert (x[0], x[-1]) == (100, 300)
    assert [round(line[-1]) for line in (low, mean, high)] == [30, 40, 50]
    x, low, *_ = pictures.curves(runs, "time")
    assert (x[0], x[-1]) == (2.0, 3.0)  # the slower run begins last, and the faster one ends first
    assert round(low[0]) == 20
