"""Character classes: Python's `re` and RE2 find exactly the characters that belong to the set."""

import re
import sys

import pytest
import tensorflow as tf

from albert_tf.text import wordpiece
from albert_tf.text.character_class import inside_class

CHARACTERS = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]


@pytest.mark.parametrize("belongs", [wordpiece.is_separated, r"a]\^-z[".__contains__])
def test_the_characters_of_a_class(belongs):
    pattern = f"[{inside_class(belongs)}]"
    expected = [char for char in CHARACTERS if belongs(char)]
    assert re.findall(pattern, "".join(CHARACTERS)) == expected
    rest = tf.strings.regex_replace("".join(CHARACTERS), pattern, "").numpy().decode()
    assert len(rest) == len(CHARACTERS) - len(expected)
    assert not set(rest) & set(expected)
