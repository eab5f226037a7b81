"""The models in the repository: complete, small, able to fill a mask, and read and written like any other."""

import re

import numpy as np
import pytest

from albert_tf import load_predictor, load_pretrained, save_pretrained
from tests.helpers import ROOT

MODEL = ROOT / "models" / "albert-tiny-docs"
TEXT = "Read the bytes of the [MASK] from disk."


@pytest.fixture(scope="module")
def predictor():
    return load_predictor(str(MODEL))


def tokens(masks: list[dict]) -> list[str]:
    return [candidate["token"] for candidate in masks]


def test_it_fills_a_mask_with_a_word_that_fits(predictor):
    (answer,) = predictor.predict([TEXT])
    assert tokens(answer["masks"][0])[0] == "▁file"
    assert answer["text"] == "read the bytes of the file from disk."


def test_texts_about_the_same_thing_are_closer_than_others(predictor):
    texts = ["Plot a line on the axes.", "Draw the legend of the plot.", "Close the socket."]
    embeddings = np.array([answer["embedding"] for answer in predictor.predict(texts)])
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    similarities = embeddings @ embeddings.T
    assert similarities[0, 1] > similarities[0, 2]


def test_the_original_format_keeps_its_answers(predictor, tmp_path):
    save_pretrained(
        load_pretrained(str(MODEL)), tmp_path, "tf1", spm_model_file=str(MODEL / "spiece.model")
    )
    assert load_predictor(str(tmp_path)).predict([TEXT]) == predictor.predict([TEXT])


def test_the_readme_shows_what_its_first_example_prints(capsys, monkeypatch):
    page = (ROOT / "README.md").read_text()
    code, output = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL).groups()
    monkeypatch.chdir(ROOT)
    exec(code, {})
    assert "load_predictor" in code
    assert capsys.readouterr().out == output
