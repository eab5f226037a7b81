"""The models in the repository: two compare texts, one fills masks."""

import re

import pytest

from albert_tf import load_predictor
from tests.helpers import ROOT

TEXTS = ["Someone performs music.", "A man is playing a guitar on stage.", "Stocks fell today."]


@pytest.mark.parametrize("name", ["albert-minilm-l6", "albert-minilm-l6-long"])
def test_texts_about_the_same_thing_are_closer_than_others(name):
    first, second, other = load_predictor(str(ROOT / "models" / name)).embed(TEXTS)
    assert first @ second > first @ other + 0.2


def test_the_model_for_trials_fills_a_mask_with_a_word_that_fits():
    predictor = load_predictor(str(ROOT / "models" / "albert-tiny-docs"))
    (answer,) = predictor.predict(["Read the bytes of the [MASK] from disk."])
    assert answer["masks"][0][0]["token"] == "▁file"
    assert answer["text"] == "read the bytes of the file from disk."


def test_the_readme_shows_what_its_first_example_prints(capsys, monkeypatch):
    page = (ROOT / "README.md").read_text()
    code, output = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL).groups()
    monkeypatch.chdir(ROOT)
    exec(code, {})
    assert "load_predictor" in code
    assert capsys.readouterr().out == output
