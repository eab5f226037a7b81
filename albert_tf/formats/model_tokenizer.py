"""The tokenizer that came with a model; importing this gives `Tokenizer` its methods for folders of models."""

import dataclasses
import sys

from albert_tf.core.errors import UserError
from albert_tf.core.files import AnyPath
from albert_tf.formats import layouts
from albert_tf.formats.tokenizer_files import vocabulary_files
from albert_tf.formats.weights import Weights
from albert_tf.text.tokenizer import Tokenizer

__all__ = ["Tokenizer", "load_tokenizer", "tokenizer_of", "vocabulary_files"]


def load_tokenizer(path: AnyPath, do_lower_case: bool | None = None) -> Tokenizer:
    """See `Tokenizer.from_pretrained`."""
    weights = layouts.read_without_arrays(path)
    # For a tokenizer alone, "[SEP]" in a text is text, whoever made the model.
    rules = dataclasses.replace(weights.rules, finds_special_tokens=False)
    weights = dataclasses.replace(weights, rules=rules)
    tokenizer = tokenizer_of(weights, do_lower_case=do_lower_case)
    tokenizer.max_length = weights.longest_sequence
    return tokenizer


def tokenizer_of(
    weights: Weights, spm_model_file: AnyPath = "", do_lower_case: bool | None = None
) -> Tokenizer:
    """The vocabulary with which a model was trained."""
    path = spm_model_file or weights.vocabulary
    if not path:
        reason = "no vocabulary came with this model; name it with --spm_model_file or --vocab_file"
        raise UserError(f"{weights.source}: {reason} (in Python: Tokenizer.from_file)")
    cleaning = weights.cleaning
    if do_lower_case is not None:
        cleaning["do_lower_case"] = do_lower_case
    tokenizer = Tokenizer.from_file(path, **cleaning, rules=weights.rules)
    tokenizer.max_length = weights.max_length
    if tokenizer.vocab_size != weights.config.vocab_size:
        reason = f"the model {weights.source} has vocab_size {weights.config.vocab_size}"
        raise UserError(f"{path}: has {tokenizer.vocab_size} tokens, but {reason}; name its own")
    return tokenizer


# The package `text` is below this one and cannot import it.
Tokenizer.model_folders = sys.modules[__name__]
