"""The most tokens of a sequence, as files of tokenizers of others say it."""

from collections.abc import Mapping
from typing import Any

from albert_tf.core.errors import UserError, shortened

_NAMES = ("model_max_length", "max_len")  # the second is that of old versions
LEAST_LENGTH = 4  # [CLS], a token, [SEP], and one more for a second text
_NO_LENGTH = 1e20  # from here on, transformers cuts nothing; it writes 1e30


def longest(settings: Mapping[str, Any], path: str) -> int | None:
    """The `model_max_length` in `tokenizer_config.json`; None if there is none, or one that cuts nothing."""
    name = next((name for name in _NAMES if name in settings), _NAMES[0])
    value = settings.get(name)
    if value is None or (type(value) in (int, float) and value >= _NO_LENGTH):
        return None
    if type(value) is not int or value < LEAST_LENGTH:
        expected = f"expected an integer of at least {LEAST_LENGTH}"
        raise UserError(f"{path}: {name} is {shortened(value)}, {expected}")
    return value
