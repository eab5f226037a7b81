"""Spans begin and end at characters that a reader sees; marks and selectors stay with their character."""

import pytest

from albert_tf.text.visible import is_invisible, visible_parts, visible_token_spans

INVISIBLE = [
    *"\u200b\u200c\u200d\u200e\u200f\ufeff\u2060\u00ad\u061c\u2066\u2067\u2068\u2069\u202a\u202e\u180e\u3164\u115f",
    *"\x00\x7f\x9f \t\u00a0\u2028",
    "\u200b \u2060",
    "\u200b\u0301",
]


@pytest.mark.parametrize("invisible", INVISIBLE)
def test_ends_that_cannot_be_seen_are_no_part(invisible):
    text = f"{invisible}ab{invisible}cd{invisible}"
    assert [text[slice(*span)] for span in visible_parts(text, [(0, len(text))])] == [
        f"ab{invisible}cd"
    ]
    ((start, end),) = visible_parts(text, [(0, len(invisible))])
    assert start == end
    assert is_invisible(invisible.replace("\u0301", "")) and not is_invisible(text)


@pytest.mark.parametrize(
    "text",
    [
        *("cafe\u0301", "❤\ufe0f", "1\ufe0f\u20e3", "葛\U000e0100", "©\ufe0e", "नि", "กั"),
        *(
            "🏴\U000e0067\U000e0062\U000e007f",
            "a\u0301\u0302",
            "ᠠ\u180b",
            "👩\u200d👧",
            "\u0600",
            "\u0903",
        ),
    ],
)
def test_marks_and_selectors_belong_to_the_character_before_them(text):
    assert visible_parts(f"{text}\u200b", [(0, len(text) + 1)]) == [(0, len(text))]


@pytest.mark.parametrize("selector", ["\ufe00", "\ufe0e", "\ufe0f", "\U000e0100"])
def test_a_selector_after_a_letter_with_case_has_no_meaning(selector):
    assert visible_parts(f"hello{selector} to", [(0, 6)]) == [(0, 5)]


@pytest.mark.parametrize("text", [" \u0301ab", "\u0301ab", "\u200b\u0301ab"])
def test_a_mark_without_a_character_is_no_part(text):
    assert visible_parts(text, [(0, len(text))]) == [(len(text) - 2, len(text))]


def test_spans_of_tokens_keep_their_order():
    text = "said\u200b \u00ad(hello\u200e)"
    # A marker alone, with the blank; then a token for the soft hyphen.
    spans = [(0, 5), (4, 4), (6, 7), (7, 8), (8, 14), (14, 15)]
    assert visible_token_spans(text, spans) == [(0, 4), (6, 6), (6, 7), (7, 8), (8, 13), (14, 15)]
    assert visible_token_spans("(a", [(0, 0), (0, 1), (1, 2)]) == [(0, 0), (0, 1), (1, 2)]
    assert visible_token_spans("a\u200b", [(0, 1), (1, 1)]) == [(0, 1), (2, 2)]
