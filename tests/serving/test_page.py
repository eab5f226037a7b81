"""The page of the server in a real browser: every kind of model is asked with the keyboard alone, and answers."""

import pytest

from albert_tf import load_predictor
from lab.browser import PROGRAM, browser
from tests.serving.test_server import serving

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PROGRAM, reason="Chromium is not installed")]
ENTER = {"windowsVirtualKeyCode": 13, "code": "Enter", "text": "\r"}
SHOWN = "document.querySelector('#answer').innerText"
SHOWN_OR_ERROR = f"{SHOWN} || document.querySelector('#error').innerText"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(str(tmp_path_factory.mktemp("profile"))) as page:
        yield page


def ask(page, *texts) -> str:
    """Writes into the fields one after the other, presses Ctrl Enter, and returns what is shown."""
    page.wait_for(SHOWN_OR_ERROR)  # the answer to the example
    page.value("document.querySelector('#answer').replaceChildren()")
    page.value("document.querySelector('#error').replaceChildren()")
    page.value("document.querySelector('#fields').querySelector('textarea, input').focus()")
    for number, text in enumerate(texts):
        if number:
            page.press("Tab", windowsVirtualKeyCode=9, code="Tab")
        page.write(text)
    page.press("Enter", modifiers=2, **ENTER)
    return page.wait_for(SHOWN_OR_ERROR)


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        ("pretrained", ["a [MASK] sat on [MASK]."], ["Mask 1", "Mask 2"]),
        ("pretrained", ["the cat sat\na dog ran"], ["Similarity", "1.00"]),
        ("embedder", ["the cat sat\na dog ran"], ["Similarity", "1.00"]),
        ("pairs", ["the cat sat", "a dog ran"], ["yes", "no", "perhaps"]),
        ("score", ["the cat sat", "a dog ran"], ["similarity: "]),
        ("labels", ["the cat sat"], ["colour", "size", "mood", "name"]),
        ("tags", ["the cat sat"], ["cat"]),
        ("span", ["the cat sat on a mat", "who sat?"], ["("]),
        ("span_or_none", ["the cat sat on a mat", "who sat?"], ["("]),
        ("choices", ["the cat sat", "who?", "a", "b", "c", "d"], ["A: a", "D: d"]),
    ],
)
def test_every_kind_of_model_answers(page, sources, kind, texts, expected):
    with serving(load_predictor(sources(kind))) as url:
        page.open(url + "/")
        assert page.value("document.title") == "tiny"
        shown = ask(page, *texts)
    assert [text for text in expected if text in shown] == expected


def test_errors_are_shown_and_a_narrow_window_is_enough(page, sources):
    texts = "the cat sat on a mat, " * 9, "who sat?"
    with serving(load_predictor(sources("span"))) as url:
        page.open(url + "/", width=320)
        assert ask(page, " ", "who sat?") == "Type a text first."
        assert "cat" in ask(page, *texts)
        assert page.value("document.documentElement.scrollWidth") <= 320
    assert ask(page, *texts) == "The server does not answer."


def test_a_link_asks_at_once(page, sources):
    with serving(load_predictor(sources("pretrained"))) as url:
        page.open(url + "/?text=a+[MASK]+sat.")
        assert "Best words" in page.wait_for(SHOWN)
