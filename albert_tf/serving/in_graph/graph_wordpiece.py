"""WordPiece as TensorFlow operations: the same ids as `text/wordpiece.py` for every text.

tensorflow-text's `BertTokenizer` is not used, because its words differ from the original's: it drops other control
characters, and recognizes fewer Chinese characters and punctuation marks. Its `FastWordpieceTokenizer` splits the
words.
"""

from collections.abc import Callable

import tensorflow as tf

from albert_tf.text import wordpiece
from albert_tf.text.character_class import inside_class
from albert_tf.text.tokenizer import WordPieceTokenizer

TEXTS = tf.TensorSpec([None], tf.string, name="texts")


def graph_wordpiece(tokenizer: WordPieceTokenizer) -> tf.Module:
    """A module with `encode`, as in `tokenizer.graph_tokenizer`."""
    import tensorflow_text as tf_text  # imported here, because models that take ids do not need it

    module = tf.Module(name="graph_tokenizer")
    module.wordpiece = tf_text.FastWordpieceTokenizer(
        _tokens_of_words(tokenizer),
        suffix_indicator=wordpiece.CONTINUES_WORD,
        max_bytes_per_word=4 * wordpiece.MOST_CHARACTERS,
        unknown_token=wordpiece.UNKNOWN,
        no_pretokenization=True,
        token_out_type=tf.int32,
    )
    is_lower = tokenizer.do_lower_case
    rules = tokenizer.rules
    strips_accents = not tokenizer.keep_accents if is_lower else rules.strips_accents
    is_separated = wordpiece.is_separated if rules.separates_chinese else wordpiece.is_punctuation

    # Without autograph, which would take half a minute for the loops that write the character classes.
    @tf.function(input_signature=[TEXTS], autograph=False)
    def encode(texts: tf.Tensor) -> tf.RaggedTensor:
        removed, spaces = map(inside_class, (wordpiece.is_removed, str.isspace))
        texts = tf.strings.regex_replace(valid(texts), f"[{removed}]", "")
        texts = tf.strings.regex_replace(texts, f"[{spaces}]", " ")
        texts = lower(texts) if is_lower else texts
        words = tf.strings.split(_separated(texts, strips_accents, is_separated))
        lengths = tf.strings.length(words.flat_values, unit="UTF8_CHAR")
        is_long = lengths > wordpiece.MOST_CHARACTERS
        words = words.with_flat_values(tf.where(is_long, wordpiece.UNKNOWN, words.flat_values))
        return module.wordpiece.tokenize(words).merge_dims(1, 2)

    module.encode = encode
    return module


def _tokens_of_words(tokenizer: WordPieceTokenizer) -> list[str]:
    """The tokens by id. Tokens that occur in no word are replaced, because the library does not accept some of them."""
    tokens = tokenizer.vocabulary()
    is_usual = [
        "".join(wordpiece.split_words(token, do_lower_case=False).split()) == token
        and token != wordpiece.CONTINUES_WORD
        for token in tokens
    ]
    return [
        token if usual else f"[unused {id}]"
        for id, (token, usual) in enumerate(zip(tokens, is_usual, strict=True))
    ]


def valid(texts: tf.Tensor) -> tf.Tensor:
    """UTF-8 strings, with U+FFFD for invalid bytes."""
    return tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace", replace_control_characters=False
    )


def _separated(
    texts: tf.Tensor, strips_accents: bool, is_separated: Callable[[str], bool]
) -> tf.Tensor:
    """Texts with spaces around some characters, such as punctuation marks; optionally without accents."""
    import tensorflow_text as tf_text

    if strips_accents:
        texts = tf_text.normalize_utf8(texts, "NFD")
        texts = tf.strings.regex_replace(texts, f"[{inside_class(wordpiece.is_accent)}]", "")
    # A Chinese character is unchanged by this, so it need not be separated before.
    return tf.strings.regex_replace(texts, f"[{inside_class(is_separated)}]", r" \0 ")


def lower(texts: tf.Tensor) -> tf.Tensor:
    """`str.lower`."""
    # tf.strings.lower handles final sigma, as str.lower does, but needs two workarounds. In a Turkish locale it lowers
    # "I" to "ı", so ASCII is lowered first, without locale. It ends a string at U+0000, which is therefore written as
    # the last code point and "1"; that code point itself, as the last code point and "0".
    last = "\U0010ffff"
    texts = tf.strings.regex_replace(tf.strings.lower(texts), last, f"{last}0")
    texts = tf.strings.regex_replace(texts, r"\x00", f"{last}1")
    texts = tf.strings.lower(texts, encoding="utf-8")
    texts = tf.strings.regex_replace(texts, f"{last}1", "\0")
    return tf.strings.regex_replace(texts, f"{last}0", last)
