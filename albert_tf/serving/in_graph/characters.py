"""Operations on characters, for the tokenizers of both kinds of vocabulary."""

import tensorflow as tf


def decode_in_graph(texts: tf.Tensor) -> tf.RaggedTensor:
    """Code points int32 [B, (characters)] of UTF-8 strings [B], as `bytes.decode(errors="replace")` decodes them."""
    return tf.strings.unicode_decode(texts, "UTF-8", errors="replace")


def lower(texts: tf.Tensor) -> tf.Tensor:
    """`str.lower`."""
    # tf.strings.lower handles final sigma, as str.lower does, but needs two workarounds. In a Turkish locale it lowers
    # "I" to "ı", so ASCII is lowered first, without locale. It ends a string at U+0000, which is therefore replaced by
    # the last code point, which is not a character.
    texts = tf.strings.regex_replace(tf.strings.lower(texts), r"\x00", "\U0010ffff")
    texts = tf.strings.lower(texts, encoding="utf-8")
    return tf.strings.regex_replace(texts, "\U0010ffff", "\0")


def two_characters_of_dotted_i(texts: tf.Tensor) -> tf.Tensor:
    """Texts with the lower case of "İ", the only character whose lower case has several characters."""
    return tf.strings.regex_replace(texts, "\u0130", "i\u0307")


def token_spans(
    lengths: tf.RaggedTensor,
    char_starts: tf.RaggedTensor,
    char_ends: tf.RaggedTensor,
    text_lengths: tf.Tensor,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Spans of tokens with `lengths` visible characters, int32 [B, (tokens)], from the spans of the characters."""
    counts, row = lengths.flat_values, lengths.value_rowids()
    first = tf.cumsum(counts, exclusive=True)
    # A token without text begins where the next token's text begins, or at the end of the text.
    is_after_all = first >= tf.gather(char_starts.row_splits, row + 1)
    padded = tf.concat([char_starts.flat_values, [0]], axis=0)
    starts = tf.where(is_after_all, tf.gather(text_lengths, row), tf.gather(padded, first))
    padded = tf.concat([[0], char_ends.flat_values], axis=0)
    ends = tf.where(counts > 0, tf.gather(padded, first + counts), starts)
    return tuple(lengths.with_flat_values(tf.cast(offsets, tf.int32)) for offsets in (starts, ends))
