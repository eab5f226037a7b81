"""What tokenizers of others do, and ours do only for their models."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert_tf.core.errors import UserError, shortened

TRUNCATION_SIDES = ("right", "left")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerRules:
    """How a tokenizer reads and cuts texts; the defaults are those of the original, and of every model made here.

    Attributes:
      finds_special_tokens: whether "[SEP]" in a text is the special token, as in transformers, and not five letters
        and brackets. `hugging_face/vocabulary.py` decides it by who made the model.
      truncation_side: the side at which a text that is too long loses tokens.
      strips_accents: whether a WordPiece vocabulary with capital letters loses accents; one of small letters does so by
        `keep_accents`.
      separates_chinese: whether each Chinese character is a word of its own in WordPiece.
      numbers_segments: whether a second text has the segment 1; a model that reads no segments has 0 everywhere.
    """

    finds_special_tokens: bool = False
    truncation_side: str = "right"
    strips_accents: bool = False
    separates_chinese: bool = True
    numbers_segments: bool = True

    @property
    def gives_rest_to_longer(self) -> bool:
        """Of two texts that are cut to halves, whether the longer one gets the odd token; otherwise the first does.

        The tokenizers that find special tokens, those of transformers, do so (`model_inputs.kept_lengths`).
        """
        return self.finds_special_tokens

    def of_words(self) -> "TokenizerRules":
        """The rules that belong to the vocabulary, which a model that is trained on further keeps."""
        usual = TokenizerRules()
        return dataclasses.replace(
            self,
            finds_special_tokens=usual.finds_special_tokens,
            truncation_side=usual.truncation_side,
        )

    def to_dict(self) -> dict[str, Any]:
        """The rules that are not the usual ones, for a JSON file."""
        usual = dataclasses.asdict(TokenizerRules())
        return {name: value for name, value in vars(self).items() if value != usual[name]}

    @classmethod
    def from_dict(cls, values: Any, source: str) -> "TokenizerRules":
        """The rules that `to_dict` wrote; anything else is an error that names `source`."""
        values = {} if values is None else values
        usual = dataclasses.asdict(cls())
        has_known_names = isinstance(values, Mapping) and values.keys() <= usual.keys()
        if not has_known_names or any(
            type(value) is not type(usual[name]) for name, value in values.items()
        ):
            expected = f"rules with some of {', '.join(usual)}"
            raise UserError(f"{source}: expected {expected}, got {shortened(values)}")
        rules = cls(**values)
        check_side(rules.truncation_side, source)
        return rules


def check_side(value: Any, source: str) -> None:
    """Checks the value of `truncation_side` in a file."""
    if value not in TRUNCATION_SIDES:
        expected = " or ".join(TRUNCATION_SIDES)
        raise UserError(f"{source}: truncation_side is {shortened(value)}, expected {expected}")
