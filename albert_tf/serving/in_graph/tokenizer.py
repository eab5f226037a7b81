"""The tokenizer as TensorFlow operations: the same ids and offsets as `text/tokenizer.py` for every text.

clean                  `clean_text`, for texts for SentencePiece
clean_with_origins     the same, with the origin of each character
graph_tokenizer        a module that encodes texts, with either kind of vocabulary
graph_tokenizer_with_offsets    the same, with the characters of each token
"""

import copy
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.serving.in_graph.characters import (
    decode_in_graph,
    lower,
    token_spans,
    two_characters_of_dotted_i,
)
from albert_tf.serving.in_graph.wordpiece import graph_wordpiece
from albert_tf.text.character_class import inside_class
from albert_tf.text.tokenizer import (
    MARKER,
    NO_BYTE_FALLBACK,
    SentencePieceTokenizer,
    Tokenizer,
    WordPieceTokenizer,
    visible_length,
)


def graph_tokenizer(tokenizer: Tokenizer) -> tf.Module:
    """The tokenizer as TensorFlow operations, for models that take strings.

    There is one exception to this equality: a character that is newer than the Unicode tables of Python, TensorFlow or
    tensorflow-text is not cleaned by all of them. (sentencepiece 0.2.2 would be another exception: it may choose
    differently between two segmentations with equal scores, "6" "66" and "66" "6".)

    Returns:
      A module with two functions of UTF-8 strings [B]. `encode` returns a RaggedTensor int32 [B, (tokens)], each row
      equal to `tokenizer.encode`. `clean` returns strings [B], each equal to `tokenizer.clean`. Invalid bytes count as
      U+FFFD.

    Raises:
      UserError: the model has no token for the comma, so the digit-comma rule would depend on unknown texts.
    """
    if isinstance(tokenizer, WordPieceTokenizer):
        return graph_wordpiece(tokenizer)
    assert isinstance(tokenizer, SentencePieceTokenizer)
    import tensorflow_text as tf_text  # imported here, because models that take ids do not need it

    if tokenizer.unknown_may_end_in_comma:
        raise UserError("tokenizing in a graph needs a SentencePiece model with a token for ','")
    table = tokenizer.replacement_table()

    module = tf.Module(name="graph_tokenizer")
    module.sentencepiece = tf_text.SentencepieceTokenizer(tokenizer.content, out_type=tf.int32)

    texts_spec = [tf.TensorSpec([None], tf.string, name="texts")]

    # Without autograph, which would take half a minute for the loops that write the character classes.
    @tf.function(input_signature=texts_spec, autograph=False)
    def clean_texts(texts: tf.Tensor) -> tf.Tensor:
        return clean(texts, **tokenizer.cleaning)

    @tf.function(input_signature=texts_spec, autograph=False)
    def encode(texts: tf.Tensor) -> tf.RaggedTensor:
        ids = module.sentencepiece.tokenize(clean_texts(texts))
        replacements = tf.RaggedTensor.from_row_lengths(table.ids, table.counts, validate=False)
        return tf.gather(replacements, ids).merge_dims(1, 2)

    module.clean, module.encode = clean_texts, encode
    return module


def graph_tokenizer_with_offsets(tokenizer: Tokenizer) -> tf.Module:
    """`graph_tokenizer`, with the characters of each token.

    Returns:
      The module of `graph_tokenizer`, with a further function, `encode_with_offsets`. It maps UTF-8 strings [B] to
      three RaggedTensors int32 [B, (tokens)]: ids, starts and ends, each row equal to `tokenizer.encode_with_offsets`.
      Starts and ends count the characters of `decode_in_graph`.

    Raises:
      UserError: the model has no token for the comma, or splits characters into bytes (trained with byte_fallback).
    """
    if isinstance(tokenizer, WordPieceTokenizer):
        return graph_wordpiece(tokenizer)
    assert isinstance(tokenizer, SentencePieceTokenizer)
    import tensorflow_text as tf_text

    if tokenizer.has_byte_tokens:
        raise UserError(NO_BYTE_FALLBACK)
    module = graph_tokenizer(tokenizer)
    character_model, characters_of_token = _character_model(tokenizer)
    # With equal names, both tokenizers would become the same one when a SavedModel is loaded.
    module.characters = tf_text.SentencepieceTokenizer(
        character_model, out_type=tf.int32, name="characters"
    )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")], autograph=False)
    def encode_with_offsets(texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        chars = decode_in_graph(texts)
        cleaned, *origins = clean_with_origins(chars, **tokenizer.cleaning)
        encoded = module.characters.tokenize_with_offsets(cleaned)
        char_spans = _visible_char_spans(encoded, characters_of_token, cleaned, origins)
        ids, lengths = _ids_and_lengths(tokenizer, module.sentencepiece, cleaned)
        return ids, *token_spans(lengths, *char_spans, chars.row_lengths())

    module.encode_with_offsets = encode_with_offsets
    return module


def clean(texts: tf.Tensor, do_lower_case: bool, keep_accents: bool = False) -> tf.Tensor:
    """`clean_text` for UTF-8 strings of any shape."""
    texts = tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace", replace_control_characters=False
    )
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


def clean_with_origins(
    chars: tf.RaggedTensor, do_lower_case: bool, keep_accents: bool = False
) -> tuple[tf.Tensor, tf.RaggedTensor, tf.RaggedTensor]:
    """`clean_with_origins` for code points [B, (characters)]: strings [B], starts and ends, int64 [B, (cleaned)]."""
    # A batch has few different characters, so each is cleaned only once.
    distinct, kind = tf.unique(chars.flat_values, out_idx=tf.int64)
    distinct = tf.strings.unicode_encode(distinct[:, None], "UTF-8")
    distinct = tf.strings.regex_replace(distinct, f"[{inside_class(str.isspace)}]", " ")
    is_space = distinct == " "
    if not keep_accents:
        distinct = _base_form(distinct)
    elif do_lower_case:
        distinct = two_characters_of_dotted_i(distinct)
    parts = tf.strings.unicode_decode(distinct, "UTF-8")
    is_space = tf.gather(is_space, kind)
    num_parts = tf.gather(parts.row_lengths(), kind)

    # Several spaces between words become one space. An accent extends the span of the character or space before it.
    row, splits = chars.value_rowids(), chars.row_splits
    num_words = tf.cumsum(tf.cast(~is_space, tf.int64))
    words_before = tf.gather(tf.concat([[0], num_words], axis=0), splits)
    words_of_rows = tf.gather(words_before, row), tf.gather(words_before, row + 1)
    is_between = (num_words > words_of_rows[0]) & (num_words < words_of_rows[1])
    is_first_space = is_space & ~_equals_previous(row, tf.cast(is_space, tf.int64))
    begins_part = tf.where(is_space, is_first_space, num_parts > 0)
    begins = tf.concat([tf.where(begins_part)[:, 0], [tf.size(kind, tf.int64)]], axis=0)
    ends = tf.gather(begins, tf.cumsum(tf.cast(begins_part, tf.int64)))
    ends = tf.minimum(ends, tf.gather(splits, row + 1))

    kept = tf.where(begins_part & (~is_space | is_between))[:, 0]
    num_parts = tf.gather(num_parts, kept)
    origin = tf.repeat(kept, num_parts)
    is_last = ~tf.equal(origin, tf.concat([origin[1:], [-1]], axis=0))
    origin_row = tf.gather(row, origin)
    ends = tf.where(is_last, tf.gather(ends, origin), origin + 1)
    first = tf.gather(splits, origin_row)

    def in_rows(values: tf.Tensor) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_value_rowids(values, origin_row, chars.nrows(), validate=False)

    cleaned = in_rows(tf.gather(parts, tf.gather(kind, kept)).flat_values)
    texts = tf.strings.unicode_encode(cleaned, "UTF-8")
    if do_lower_case:
        texts = lower(texts)
    return texts, in_rows(origin - first), in_rows(ends - first)


def _visible_char_spans(
    encoded: tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor],
    characters_of_token: np.ndarray,
    cleaned: tf.Tensor,
    origins: Sequence[tf.RaggedTensor],
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """`Tokenizer._visible_char_spans` for texts [B], from tokens of `_character_model` and origins of characters."""
    tokens, starts, ends = encoded
    row = tokens.value_rowids()
    starts, ends = (tf.cast(offsets.flat_values, tf.int64) for offsets in (starts, ends))
    # Tokens from the same characters start together; the last of these tokens has the end of the characters.
    group = tf.cumsum(tf.cast(~_equals_previous(row, starts), tf.int64)) - 1
    ends = tf.gather(tf.math.segment_max(ends, group), group)

    visible = tf.repeat(tf.range(tf.size(row)), tf.gather(characters_of_token, tokens.flat_values))
    row, starts, ends = (tf.gather(values, visible) for values in (row, starts, ends))
    _, char_bytes = tf.strings.unicode_decode_with_offsets(cleaned, "UTF-8")
    first_byte = tf.cumsum(tf.strings.length(cleaned, unit="BYTE"), exclusive=True)
    first_byte = tf.cast(first_byte, tf.int64)
    char_bytes = char_bytes.flat_values + tf.gather(first_byte, char_bytes.value_rowids())
    starts, ends = (offsets + tf.gather(first_byte, row) for offsets in (starts, ends))
    first_char = tf.searchsorted(char_bytes, starts, side="right", out_type=tf.int64) - 1
    last_char = tf.searchsorted(char_bytes, ends, side="left", out_type=tf.int64) - 1
    origin_starts, origin_ends = (
        tf.RaggedTensor.from_value_rowids(
            tf.gather(origin.flat_values, chars), row, tokens.nrows(), validate=False
        )
        for origin, chars in zip(origins, (first_char, last_char), strict=True)
    )
    return origin_starts, origin_ends


def _ids_and_lengths(
    tokenizer: SentencePieceTokenizer, sentencepiece_op: Any, cleaned: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Ids of cleaned texts [B], int32, and their numbers of visible characters, int64; [B, (tokens)] each."""
    raw_ids = sentencepiece_op.tokenize(cleaned)
    table = tokenizer.replacement_table()
    tables = [
        tf.RaggedTensor.from_row_lengths(values, table.counts, validate=False)
        for values in (table.ids, table.lengths)
    ]
    ids, lengths = (tf.gather(table, raw_ids).merge_dims(1, 2) for table in tables)

    # An unknown token is as long as its text. The second tokenizer shares the model of the first.
    texts_op = copy.copy(sentencepiece_op)
    texts_op.out_type = tf.string
    is_unknown = raw_ids == tokenizer.unk_id
    rows = tf.where(tf.reduce_any(is_unknown, axis=1))[:, 0]
    texts = texts_op.tokenize(tf.gather(cleaned, rows)).flat_values
    texts = tf.boolean_mask(texts, tf.gather(is_unknown, rows).flat_values)
    texts = tf.strings.regex_replace(texts, MARKER, "")
    parts = tf.gather(table.counts, raw_ids.flat_values)
    places = tf.boolean_mask(tf.cumsum(parts, exclusive=True), is_unknown.flat_values)
    text_lengths = tf.cast(tf.strings.length(texts, unit="UTF8_CHAR"), tf.int64)
    values = tf.tensor_scatter_nd_update(lengths.flat_values, places[:, None], text_lengths)
    return ids, lengths.with_flat_values(values)


def _equals_previous(*columns: tf.Tensor) -> tf.Tensor:
    """Whether a row of int64 columns [N] equals the row before it, bool [N]."""
    equal = tf.reduce_all([column[1:] == column[:-1] for column in columns], axis=0)
    return tf.concat([tf.zeros_like(columns[0][:1], tf.bool), equal], axis=0)


def _character_model(tokenizer: SentencePieceTokenizer) -> tuple[bytes, np.ndarray]:
    """A model that shows the normalized text with offsets, and the visible characters that begin in its tokens.

    Its tokens are the bytes of single characters, the marker, and the symbols that the normalizer does not change.
    """
    from sentencepiece import sentencepiece_model_pb2 as schema

    kinds = schema.ModelProto.SentencePiece
    model = schema.ModelProto.FromString(tokenizer.content)
    symbols = [piece.piece for piece in model.pieces if piece.type == kinds.USER_DEFINED]
    model.ClearField("pieces")
    model.ClearField("self_test_data")
    model.trainer_spec.model_type = schema.TrainerSpec.CHAR
    model.trainer_spec.byte_fallback = True
    model.pieces.add(piece=model.trainer_spec.unk_piece, type=kinds.UNKNOWN)
    if MARKER not in symbols:
        model.pieces.add(piece=MARKER, type=kinds.NORMAL)
    for symbol in symbols:
        model.pieces.add(piece=symbol, type=kinds.USER_DEFINED)
    counts = [0, *(visible_length(piece.piece) for piece in model.pieces[1:])]
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", type=kinds.BYTE)
        # A character has exactly one byte that is not a continuation byte.
        counts.append(int(byte & 0xC0 != 0x80))
    return model.SerializeToString(), np.array(counts, np.int32)
