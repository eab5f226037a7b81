"""Tokenizers on any text: offsets and cleaning."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from albert_tf.text.cleaning import clean_text, clean_with_origins
from albert_tf.text.word_starts import MARKER
from tests.properties.strategies import SENTENCES, TEXTS


@given(TEXTS, st.booleans())
def test_every_clean_character_comes_from_the_text(text, lower):
    cleaned, origins = clean_with_origins(text, do_lower_case=lower)
    assert cleaned == clean_text(text, do_lower_case=lower)
    assert len(origins) == len(cleaned)
    assert all(0 <= start < end <= len(text) for start, end in origins)
    assert origins == sorted(origins)


@given(text=SENTENCES)
def test_offsets_ascend_within_the_text_and_cover_what_is_seen(tokenizer, text):
    """What a reader cannot see may be missing; a mark without a character before it cannot be seen either."""
    ids, spans = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    assert starts == sorted(starts) and ends == sorted(ends)
    covered = ""
    position = 0
    for start, end in spans:
        assert 0 <= start <= end <= len(text)
        assert text[start:end] == text[start:end].strip()
        covered += text[max(start, position) : end]
        position = max(position, end)

    def seen(text):
        normalized = tokenizer._processor.normalize(tokenizer.clean(text)).replace(MARKER, "")
        invisible = ("Cc", "Cf", "Mn", "Me")
        return [char for char in normalized if unicodedata.category(char) not in invisible]

    # A small sigma depends on its neighbors.
    if "Σ" not in text and "Σ" not in unicodedata.normalize("NFKD", text):
        assert seen(covered) == seen(text)
