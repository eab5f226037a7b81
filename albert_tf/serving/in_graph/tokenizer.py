"""The tokenizer as TensorFlow operations: equal to `Tokenizer` for every text, with offsets."""

import copy
import functools
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf.core.errors import UserError

if TYPE_CHECKING:
    import tensorflow as tf
from albert_tf.text.tokenizer import _NO_BYTE_FALLBACK, MARKER, Tokenizer, _visible_length


def graph_tokenizer(tokenizer: Tokenizer) -> "tf.Module":
    """The tokenizer as TensorFlow operations, for models that take strings.

    One exception to equality: characters that are newer than the Unicode tables of Python, TensorFlow or
    tensorflow-text are cleaned by one and not by the other. (sentencepiece 0.2.2 would be another: of two
    segmentations with the same score, "6" "66" and "66" "6", it may take the other one.)

    Args:
      tokenizer: the tokenizer to equal; its model becomes a part of the module and of a SavedModel of it.

    Returns:
      A module whose `encode` maps UTF-8 strings [B] to a RaggedTensor int32 [B, (pieces)], equal to
      `tokenizer.encode` row by row, and whose `clean` maps them to strings [B], equal to `tokenizer.clean`; invalid
      bytes count as U+FFFD.

    Raises:
      UserError: the model has no piece for the comma, so that the digit-comma rule would need its text.
    """
    import tensorflow as tf
    import tensorflow_text as tf_text

    if tokenizer._unknown_may_end_in_comma:
        raise UserError("tokenizing in a graph needs a SentencePiece model with a piece for ','")
    flat_replacements, row_lengths = tokenizer.replacement_table()

    module = tf.Module(name="graph_tokenizer")
    module.sentencepiece = tf_text.SentencepieceTokenizer(tokenizer.model_proto, out_type=tf.int32)

    texts_spec = [tf.TensorSpec([None], tf.string, name="texts")]

    # Without autograph, which would take half a minute to trace the loops that write the character classes.
    @tf.function(input_signature=texts_spec, autograph=False)
    def clean(texts: tf.Tensor) -> tf.Tensor:
        return _clean_in_graph(texts, tokenizer.do_lower_case)

    @tf.function(input_signature=texts_spec, autograph=False)
    def encode(texts: tf.Tensor) -> tf.RaggedTensor:
        ids = module.sentencepiece.tokenize(clean(texts))
        replacements = tf.RaggedTensor.from_row_lengths(
            flat_replacements, row_lengths, validate=False
        )
        return tf.gather(replacements, ids).merge_dims(1, 2)

    module.clean, module.encode = clean, encode
    return module


def graph_tokenizer_with_offsets(tokenizer: Tokenizer) -> "tf.Module":
    """`graph_tokenizer`, and which characters of the text each piece stands for.

    Args:
      tokenizer: the tokenizer to equal; its model becomes a part of the module and of a SavedModel of it.

    Returns:
      The module of `graph_tokenizer`, with `encode_with_offsets` besides. It maps UTF-8 strings [B] to three
      RaggedTensors int32 [B, (pieces)]: ids, starts and ends, equal to `tokenizer.encode_with_offsets` row by row.
      Starts and ends count the characters that `decode_in_graph` finds.

    Raises:
      UserError: the model has no piece for the comma, or breaks characters into bytes (trained with byte_fallback).
    """
    import tensorflow as tf
    import tensorflow_text as tf_text

    if any(map(tokenizer._processor.is_byte, range(tokenizer.vocab_size))):
        raise UserError(_NO_BYTE_FALLBACK)
    module = graph_tokenizer(tokenizer)
    character_model, characters_of_token = _character_model(tokenizer)
    # Without a name of its own, it would be the same as the other one in a SavedModel that is loaded.
    module.characters = tf_text.SentencepieceTokenizer(
        character_model, out_type=tf.int32, name="characters"
    )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")], autograph=False)
    def encode_with_offsets(texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        chars = decode_in_graph(texts)
        cleaned, *origins = _clean_with_origins_in_graph(chars, tokenizer.do_lower_case)
        char_spans = _visible_char_spans_in_graph(
            module.characters.tokenize_with_offsets(cleaned), characters_of_token, cleaned, origins
        )
        ids, lengths = _ids_and_lengths_in_graph(tokenizer, module.sentencepiece, cleaned)
        return ids, *_piece_spans_in_graph(lengths, *char_spans, chars.row_lengths())

    module.encode_with_offsets = encode_with_offsets
    return module


def decode_in_graph(texts: "tf.Tensor") -> "tf.RaggedTensor":
    """The characters of UTF-8 strings, as `bytes.decode(errors="replace")` reads them: invalid bytes are U+FFFD.

    Args:
      texts: string [B].

    Returns:
      Unicode code points, RaggedTensor int32 [B, (characters)].
    """
    import tensorflow as tf

    return tf.strings.unicode_decode(texts, "UTF-8", errors="replace")


def _clean_in_graph(texts: "tf.Tensor", do_lower_case: bool) -> "tf.Tensor":
    """`clean_text` of UTF-8 strings, any shape."""
    import tensorflow as tf

    texts = tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace", replace_control_characters=False
    )
    # RE2's own classes are narrower than Python's: its white space is ASCII, and accents are not category Mn.
    texts = tf.strings.regex_replace(texts, f"{_char_class(str.isspace)}+", " ")
    texts = tf.strings.regex_replace(texts, "^ | $", "")
    texts = _decompose_in_graph(texts)
    return _lower_in_graph(texts) if do_lower_case else texts


def _decompose_in_graph(texts: "tf.Tensor") -> "tf.Tensor":
    """Compatibility forms decomposed, accents dropped."""
    import tensorflow as tf
    import tensorflow_text as tf_text

    texts = tf_text.normalize_utf8(texts, "NFKD")
    return tf.strings.regex_replace(texts, _char_class(unicodedata.combining), "")


def _lower_in_graph(texts: "tf.Tensor") -> "tf.Tensor":
    """`str.lower`."""
    import tensorflow as tf

    # tf.strings.lower knows final sigma, as str.lower does, but has two traits to work around. In a Turkish
    # locale it takes the dot from "I": ASCII goes first, without locale. It ends a string at U+0000: the last
    # code point, which is no character, stands in for that.
    texts = tf.strings.regex_replace(tf.strings.lower(texts), r"\x00", "\U0010ffff")
    texts = tf.strings.lower(texts, encoding="utf-8")
    return tf.strings.regex_replace(texts, "\U0010ffff", "\0")


@functools.cache
def _char_class(belongs: Callable[[str], object]) -> str:
    """An RE2 character class of all characters for which `belongs` is true."""
    ranges = []
    for code in range(sys.maxunicode + 1):
        if belongs(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "[" + "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in ranges) + "]"


def _clean_with_origins_in_graph(
    chars: "tf.RaggedTensor", do_lower_case: bool
) -> tuple["tf.Tensor", "tf.RaggedTensor", "tf.RaggedTensor"]:
    """`_clean_with_origins` of code points [B, (characters)].

    Returns:
      The cleaned texts, string [B]; where each of their characters starts and ends in the original, int64 [B, (cleaned
      characters)].
    """
    import tensorflow as tf

    # A batch has few different characters: what becomes of each is found out once.
    distinct, kind = tf.unique(chars.flat_values, out_idx=tf.int64)
    distinct = tf.strings.unicode_encode(distinct[:, None], "UTF-8")
    distinct = tf.strings.regex_replace(distinct, _char_class(str.isspace), " ")
    parts = tf.strings.unicode_decode(_decompose_in_graph(distinct), "UTF-8")
    is_space = tf.gather(distinct == " ", kind)
    num_parts = tf.gather(parts.row_lengths(), kind)

    # A run of spaces between words becomes one space. An accent lengthens what stands before it, be it a space.
    row, splits = chars.value_rowids(), chars.row_splits
    num_words = tf.cumsum(tf.cast(~is_space, tf.int64))
    words_before = tf.gather(tf.concat([[0], num_words], axis=0), splits)
    is_between = (num_words > tf.gather(words_before, row)) & (
        num_words < tf.gather(words_before, row + 1)
    )
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
        texts = _lower_in_graph(texts)
    return texts, in_rows(origin - first), in_rows(ends - first)


def _visible_char_spans_in_graph(
    encoded: tuple["tf.RaggedTensor", "tf.RaggedTensor", "tf.RaggedTensor"],
    characters_of_token: np.ndarray,
    cleaned: "tf.Tensor",
    origins: Sequence["tf.RaggedTensor"],
) -> tuple["tf.RaggedTensor", "tf.RaggedTensor"]:
    """`Tokenizer._visible_char_spans` of texts [B].

    Args:
      encoded: tokens of the model of `_character_model`, and the bytes of the cleaned texts that they start and end at,
        [B, (tokens)] each.
      characters_of_token: of the same model.
      cleaned: the texts, string [B].
      origins: where their characters start and end in the original, int64 [B, (cleaned characters)].

    Returns:
      Starts and ends, int64 [B, (visible characters)].
    """
    import tensorflow as tf

    tokens, starts, ends = encoded
    row = tokens.value_rowids()
    starts, ends = (tf.cast(offsets.flat_values, tf.int64) for offsets in (starts, ends))
    # The tokens that come from the same characters start together, and the last of them says where these end.
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
    spans = (
        tf.gather(origins[0].flat_values, first_char),
        tf.gather(origins[1].flat_values, last_char),
    )
    return tuple(
        tf.RaggedTensor.from_value_rowids(values, row, tokens.nrows(), validate=False)
        for values in spans
    )


def _ids_and_lengths_in_graph(
    tokenizer: Tokenizer, sentencepiece_op: Any, cleaned: "tf.Tensor"
) -> tuple["tf.RaggedTensor", "tf.RaggedTensor"]:
    """Ids of cleaned texts [B], int32, and how many visible characters they have, int64; [B, (pieces)] each."""
    import tensorflow as tf

    raw_ids = sentencepiece_op.tokenize(cleaned)
    flat_ids, num_parts = tokenizer.replacement_table()
    tables = [
        tf.RaggedTensor.from_row_lengths(values, num_parts, validate=False)
        for values in (flat_ids, tokenizer._replacement_lengths())
    ]
    ids, lengths = (tf.gather(table, raw_ids).merge_dims(1, 2) for table in tables)

    # How long an unknown piece is, only its text says. The second tokenizer shares the model of the first.
    texts_op = copy.copy(sentencepiece_op)
    texts_op.out_type = tf.string
    is_unknown = raw_ids == tokenizer.unk_id
    rows = tf.where(tf.reduce_any(is_unknown, axis=1))[:, 0]
    texts = tf.boolean_mask(
        texts_op.tokenize(tf.gather(cleaned, rows)).flat_values,
        tf.gather(is_unknown, rows).flat_values,
    )
    texts = tf.strings.regex_replace(texts, MARKER, "")
    parts = tf.gather(num_parts, raw_ids.flat_values)
    places = tf.boolean_mask(tf.cumsum(parts, exclusive=True), is_unknown.flat_values)
    lengths = lengths.with_flat_values(
        tf.tensor_scatter_nd_update(
            lengths.flat_values,
            places[:, None],
            tf.cast(tf.strings.length(texts, unit="UTF8_CHAR"), tf.int64),
        )
    )
    return ids, lengths


def _piece_spans_in_graph(
    lengths: "tf.RaggedTensor",
    char_starts: "tf.RaggedTensor",
    char_ends: "tf.RaggedTensor",
    text_lengths: "tf.Tensor",
) -> tuple["tf.RaggedTensor", "tf.RaggedTensor"]:
    """Spans of pieces of `lengths` visible characters, int32 [B, (pieces)], from those of the characters."""
    import tensorflow as tf

    counts, row = lengths.flat_values, lengths.value_rowids()
    first = tf.cumsum(counts, exclusive=True)
    # A piece without text begins where the next one's text does, the last ones at the end.
    is_after_all = first >= tf.gather(char_starts.row_splits, row + 1)
    padded = tf.concat([char_starts.flat_values, [0]], axis=0)
    starts = tf.where(is_after_all, tf.gather(text_lengths, row), tf.gather(padded, first))
    padded = tf.concat([[0], char_ends.flat_values], axis=0)
    ends = tf.where(counts > 0, tf.gather(padded, first + counts), starts)
    return tuple(lengths.with_flat_values(tf.cast(offsets, tf.int32)) for offsets in (starts, ends))


def _equals_previous(*columns: "tf.Tensor") -> "tf.Tensor":
    """Whether a row of some int64 columns [N] equals the row before, bool [N]."""
    import tensorflow as tf

    equal = tf.ones_like(columns[0][1:], tf.bool)
    for column in columns:
        equal &= column[1:] == column[:-1]
    return tf.concat([tf.zeros_like(columns[0][:1], tf.bool), equal], axis=0)


def _character_model(tokenizer: Tokenizer) -> tuple[bytes, np.ndarray]:
    """A SentencePiece model that shows what the tokenizer's normaliser makes of a text, with offsets.

    It has the same normaliser, and cuts into the bytes of single characters, as its only pieces are the marker and
    those symbols that the normaliser leaves as they are.

    Returns:
      The model, and how many visible characters each of its tokens begins, int32 [tokens].
    """
    from sentencepiece import sentencepiece_model_pb2 as schema

    kinds = schema.ModelProto.SentencePiece
    model = schema.ModelProto.FromString(tokenizer.model_proto)
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
    counts = [0, *(_visible_length(piece.piece) for piece in model.pieces[1:])]
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", type=kinds.BYTE)
        counts.append(int(byte & 0xC0 != 0x80))  # a character has one byte that continues none
    return model.SerializeToString(), np.array(counts, np.int32)
