"""The tokenizer as TensorFlow operations: the same ids as `albert_tf.text.tokenizer` for every text."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.serving.in_graph.graph_wordpiece import TEXTS, graph_wordpiece, lower, valid
from albert_tf.text.character_class import inside_class
from albert_tf.text.tokenizer import SentencePieceTokenizer, Tokenizer, WordPieceTokenizer

_NO_CHARACTER = "\U0010ffff"


def graph_tokenizer(tokenizer: Tokenizer) -> tf.Module:
    """A module whose function `encode` maps UTF-8 strings [B] to a RaggedTensor int32 [B, (tokens)].

    Each row equals `tokenizer.encode`, but for characters that are newer than the Unicode tables of Python, TensorFlow
    or tensorflow-text. (sentencepiece 0.2.2 may choose differently between two segmentations with equal scores, "6"
    "66" and "66" "6".) Invalid bytes count as U+FFFD. A UserError if the vocabulary has added tokens, or no token for
    the comma: the digit-comma rule would depend on unknown texts.
    """
    for token in tokenizer.added_tokens:
        if token.is_found:
            raise UserError(f"a graph cannot find added tokens such as {token.text}")
    make_module = _MODULES.get(type(tokenizer))
    if not make_module:
        raise UserError(f"a graph cannot tokenize with a vocabulary like {tokenizer.file_name}")
    module = make_module(tokenizer)
    if tokenizer.rules.finds_special_tokens:
        module.encode = _finding_special_tokens(module.encode, tokenizer)
    return module


def _finding_special_tokens(encode: Callable, tokenizer: Tokenizer) -> Callable:
    """`encode` for texts in which "[SEP]" and the like are special tokens (`TokenizerRules`)."""
    tokens = tokenizer.special_tokens()
    pattern = f"({'|'.join(map(re.escape, tokens))})"

    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode_parts(texts: tf.Tensor) -> tf.RaggedTensor:
        # The last code point, which is not a character, stands between the parts of a text:
        # "a[SEP]b" and "c" -> [["a", "[SEP]", "b"], ["c"]], so [2, (3, 1)].
        texts = tf.strings.regex_replace(valid(texts), _NO_CHARACTER, "\ufffd")
        marked = tf.strings.regex_replace(texts, pattern, rf"{_NO_CHARACTER}\1{_NO_CHARACTER}")
        parts = tf.strings.split(marked, _NO_CHARACTER)

        # [4, 5]: which of 5 special tokens each of the 4 parts is; [4], whether it is one of them.
        is_token = parts.flat_values[:, None] == tf.constant(tokens)
        is_special = tf.reduce_any(is_token, axis=1)

        # [4, (0 or 1)]: the id of a special token; [4, (tokens)]: the ids of a text, none for a special token.
        ids = tf.gather(tf.constant(tokenizer.special_ids()), tf.argmax(is_token, axis=1))
        of_special = tf.RaggedTensor.from_row_lengths(
            ids[is_special], tf.cast(is_special, tf.int64)
        )
        of_text = encode(tf.where(is_special, "", parts.flat_values))

        # [4, (tokens)] -> [2, (tokens)]
        of_parts = tf.concat([of_special, of_text], axis=1)
        return tf.RaggedTensor.from_row_splits(of_parts, parts.row_splits).merge_dims(1, 2)

    return encode_parts


def _graph_sentencepiece(tokenizer: SentencePieceTokenizer) -> tf.Module:
    import tensorflow_text as tf_text  # imported here, because models that take ids do not need it

    if tokenizer.unknown_may_end_in_comma:
        raise UserError("tokenizing in a graph needs a SentencePiece model with a token for ','")
    replacements = tf.ragged.constant(tokenizer.replacements(), tf.int32)

    module = tf.Module(name="graph_tokenizer")
    module.sentencepiece = tf_text.SentencepieceTokenizer(tokenizer.content, out_type=tf.int32)

    # Without autograph, which would take half a minute for the loops that write the character classes.
    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode(texts: tf.Tensor) -> tf.RaggedTensor:
        ids = module.sentencepiece.tokenize(clean(texts, **tokenizer.cleaning))
        return tf.gather(replacements, ids).merge_dims(1, 2)

    module.encode = encode
    return module


# A kind of vocabulary -> what makes the module.
_MODULES: Mapping[type[Tokenizer], Callable[[Any], tf.Module]] = {
    SentencePieceTokenizer: _graph_sentencepiece,
    WordPieceTokenizer: graph_wordpiece,
}


def clean(texts: tf.Tensor, do_lower_case: bool, keep_accents: bool = False) -> tf.Tensor:
    """`clean_text` for UTF-8 strings of any shape."""
    texts = valid(texts)
    # RE2's own classes match fewer characters than Python's: white space is only ASCII, and accents are not category
    # Mn.
    texts = tf.strings.regex_replace(texts, f"[{inside_class(str.isspace)}]+", " ")
    texts = tf.strings.regex_replace(texts, "^ | $", "")
    texts = texts if keep_accents else _base_form(texts)
    return lower(texts) if do_lower_case else texts


def _base_form(texts: tf.Tensor) -> tf.Tensor:
    """The compatibility forms without accents."""
    import tensorflow_text as tf_text

    texts = tf_text.normalize_utf8(texts, "NFKD")
    return tf.strings.regex_replace(texts, f"[{inside_class(unicodedata.combining)}]", "")
