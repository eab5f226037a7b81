"""Text -> piece ids: cleaning, SentencePiece, the digit-comma rule, offsets into the original text.

    clean_text         white space, compatibility forms, accents, case
    Tokenizer          the same ids as the original's `preprocess_text` and `encode_ids`, for data preparation
    graph_tokenizer    the same ids again, computed inside a TensorFlow graph, for exported models
    graph_tokenizer_with_offsets    and the same offsets into the original text

Special pieces are inserted by id only: "[CLS]" inside a text is text. TensorFlow is imported by
the graph's tokenizers and for remote paths only, so that processes that prepare data start without it.
"""

import copy
import functools
import hashlib
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import sentencepiece

from albert_tf.core.errors import UserError
from albert_tf.core.files import read_bytes

if TYPE_CHECKING:
    import tensorflow as tf

MARKER = "▁"  # U+2581: SentencePiece writes it for the space before a word
WORD_START_RULES = ("original", "marker")

_WORD = re.compile(r"\S+")  # splits where str.split() does
_NOT_ASCII = re.compile("[^\x00-\x7f]+")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON can hold it, UTF-8 cannot
_ENGLISH_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_NO_BYTE_FALLBACK = "offsets need a SentencePiece model trained without byte_fallback"
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')  # the original's: no ' < = >


def clean_text(text: str, *, do_lower_case: bool) -> str:
    """Collapses white space, decomposes compatibility forms, drops accents and, if asked to, case.

    White space goes first, so that spaces which the decomposition makes ("´" is a space and an accent) stay.

    Example:
      " Ｃａｆé \\t ﬁn" -> "cafe fin"

    Args:
      text: any string; half a surrogate pair counts as U+FFFD.
      do_lower_case: whether to lower the case.

    Returns:
      The cleaned text; empty if `text` is white space only.

    Raises:
      TypeError: `text` is not a str.

    Source: tokenization.py:33-50 (`preprocess_text`).
    """
    _check_is_text(text)
    text = " ".join(text.split())
    if not text.isascii():
        text = unicodedata.normalize("NFKD", _LONE_SURROGATE.sub("\ufffd", text))
        text = _NOT_ASCII.sub(_without_accents, text)
    return text.lower() if do_lower_case else text


def _without_accents(found: re.Match) -> str:
    return "".join([char for char in found[0] if not unicodedata.combining(char)])


def is_word_start(piece: str) -> bool:
    """Whether a piece starts a word of its own by the original's rule, made for English.

    A piece continues a word only if it has no marker and all of it is English letters and punctuation other
    than "'", "<", "=" and ">"; so every unmarked digit starts a word. A punctuation mark alone starts one.

    Source: create_pretraining_data.py:393-407 (`_is_start_piece_sp`). It lists "€" and "£" too, as bytes that
    equal no piece in Python 3; being no English letters, they start a word all the same.
    """
    return (
        piece.startswith((MARKER, "<"))
        or piece in _PUNCTUATION
        or not all(char.lower() in _ENGLISH_LETTERS | _PUNCTUATION for char in piece)
    )


class Tokenizer:
    """A SentencePiece model with the text cleaning and the digit-comma rule of the original.

    The digit-comma rule: a piece that ends in a digit and a comma ("▁1999,") is encoded again without the comma
    ("▁1999" ","), so that the number keeps its own piece.

    Attributes:
      model_proto: the bytes of the model file.
      do_lower_case: whether text is lower-cased.
      sha256: hexadecimal hash of `model_proto`.
      vocab_size: number of pieces, V.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of `<pad>`, `<unk>`, `[CLS]`, `[SEP]` and `[MASK]`.
    """

    def __init__(
        self, model_proto: bytes, *, do_lower_case: bool = True, source: str = "SentencePiece model"
    ):
        """Loads a serialized model.

        Args:
          model_proto: the bytes of a SentencePiece model file.
          do_lower_case: whether to lower-case text; false for a cased model.
          source: what error messages call the model.

        Raises:
          UserError: the bytes are no SentencePiece model, or a special piece is missing.
        """
        self.model_proto = model_proto
        self.do_lower_case = do_lower_case
        self.sha256 = hashlib.sha256(model_proto).hexdigest()
        self._processor = _load_processor(model_proto, source)
        self.vocab_size = self._processor.get_piece_size()
        self.unk_id = self._processor.unk_id()
        self.pad_id = self._special_id("<pad>", source)
        self.cls_id = self._special_id("[CLS]", source)
        self.sep_id = self._special_id("[SEP]", source)
        self.mask_id = self._special_id("[MASK]", source)

        # What the digit-comma rule makes of a piece of the vocabulary depends on that piece alone.
        self._replacements = {
            id: list(map(self._processor.piece_to_id, self._split_digit_comma(piece)))
            for id, piece in enumerate(map(self.id_to_piece, range(self.vocab_size)))
            if _ends_in_digit_comma(piece)
        }
        # An unknown piece's text can end in a comma only if the comma itself is unknown, or if the model cuts
        # at white space only: both make the last piece of a private-use character and a comma unknown.
        self._unknown_may_end_in_comma = self._processor.encode("\ue000,")[-1] == self.unk_id

    @classmethod
    def from_file(cls, path: str, *, do_lower_case: bool = True) -> "Tokenizer":
        """Loads a model file; paths with :// are read through TensorFlow.

        Raises:
          UserError: the file cannot be read, is no SentencePiece model, or lacks a special piece.
        """
        return cls(read_bytes(path), do_lower_case=do_lower_case, source=path)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special pieces.

        Raises:
          TypeError: `text` is not a str.

        Source: tokenization.py:53-96 (`encode_pieces`, `encode_ids`).
        """
        return self._encode_cleaned([self.clean(text)])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[np.ndarray]:
        """The ids of many texts, faster than one by one; uses one processor core.

        Returns:
          For each text an int32 array [pieces], equal to `encode(text)`.

        Raises:
          TypeError: one of `texts` is not a str, or `texts` itself is one.
        """
        if isinstance(texts, str | bytes):
            raise TypeError("texts must be several texts, got one; use encode(text)")
        all_ids = self._encode_cleaned([self.clean(text) for text in texts])
        return [np.array(ids, np.int32) for ids in all_ids]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of a text, and which of its characters each piece stands for.

        Example:
          "Ｃafé, 1999," -> "▁cafe" "," "▁1999" "," at (0, 4), (4, 5), (6, 10), (10, 11)

        Spans neither begin nor end in white space. A piece without text of its own (the marker alone) has an
        empty span, where the next piece's text begins. Characters that leave no trace in any piece (accents,
        zero-width characters) belong to the character before. The pieces of one character ("½" is "1", "⁄"
        and "2") all have that character's span.

        Args:
          text: the text as the user wrote it, before any cleaning.

        Returns:
          ids, equal to `encode(text)`, and as many (start, end) with `text[start:end]` the piece's text.

        Raises:
          TypeError: `text` is not a str.
          UserError: the model breaks characters into bytes (trained with byte_fallback).
        """
        cleaned, origins = _clean_with_origins(text, self.do_lower_case)
        ids, pieces = self._encode_with_pieces(cleaned)
        char_spans = self._visible_char_spans(cleaned, origins)
        lengths = list(map(_visible_length, pieces))
        if sum(lengths) != len(char_spans):
            raise UserError(_NO_BYTE_FALLBACK)

        spans = []
        first = 0
        for length in lengths:
            if length:
                start, end = char_spans[first][0], char_spans[first + length - 1][1]
            else:
                start = end = char_spans[first][0] if first < len(char_spans) else len(text)
            spans.append((start, end))
            first += length
        return ids, spans

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; `<pad>`, `[CLS]`, `[SEP]` and `[MASK]` are skipped, an unknown piece is "⁇"."""
        skipped = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        return self._processor.decode([int(id) for id in ids if int(id) not in skipped])

    def id_to_piece(self, id: int) -> str:
        """The piece of an id, with its marker."""
        return self._processor.id_to_piece(int(id))

    def piece_to_id(self, piece: str) -> int:
        """The id of a piece, `unk_id` if the vocabulary does not have it."""
        return self._processor.piece_to_id(piece)

    def clean(self, text: str) -> str:
        """`clean_text` with this tokenizer's `do_lower_case`."""
        return clean_text(text, do_lower_case=self.do_lower_case)

    def normalize(self, cleaned: str) -> str:
        """What the model cuts into pieces in place of a cleaned text; the marker stands for spaces."""
        return self._processor.normalize(cleaned)

    def word_starts(self, rule: str = "original") -> np.ndarray:
        """Which pieces start a word, for whole-word and n-gram masking.

        Args:
          rule: `original` is `is_word_start`, right for English; `marker` takes pieces that begin with the
            marker, for languages in which the original's rule makes every piece a word.

        Returns:
          bool [V].

        Raises:
          UserError: there is no such rule.
        """
        if rule not in WORD_START_RULES:
            raise UserError(f"rule must be one of {', '.join(WORD_START_RULES)}; got {rule!r}")
        pieces = [self.id_to_piece(id) for id in range(self.vocab_size)]
        if rule == "marker":
            return np.array([piece.startswith(MARKER) for piece in pieces])
        return np.array([is_word_start(piece) for piece in pieces])

    def replacement_table(self) -> tuple[np.ndarray, np.ndarray]:
        """What the digit-comma rule makes of every piece: itself, for most.

        Returns:
          The new ids of all pieces in a row, int32 [total], and how many each piece has, int64 [V].
        """
        rows = [self._replacements.get(id, [id]) for id in range(self.vocab_size)]
        return np.concatenate(rows).astype(np.int32), np.array([len(row) for row in rows], np.int64)

    def _replacement_lengths(self) -> np.ndarray:
        """The visible characters of each piece in the first array of `replacement_table`, int64 [total]."""
        pieces = []
        for id in range(self.vocab_size):
            piece = self.id_to_piece(id)
            pieces += self._split_digit_comma(piece) if id in self._replacements else [piece]
        return np.array([_visible_length(piece) for piece in pieces], np.int64)

    def _encode_cleaned(self, texts: list[str]) -> list[list[int]]:
        all_ids = self._processor.encode(texts, num_threads=1)
        replacements = self._replacements
        for row, ids in enumerate(all_ids):
            if self._unknown_may_end_in_comma and self.unk_id in ids:
                all_ids[row] = self._encode_with_pieces(texts[row])[0]
            elif not replacements.keys().isdisjoint(ids):
                all_ids[row] = [new for id in ids for new in replacements.get(id, (id,))]
        return all_ids

    def _encode_with_pieces(self, cleaned: str) -> tuple[list[int], list[str]]:
        """Ids and pieces, the digit-comma rule applied; an unknown piece is given as its text."""
        new_ids, new_pieces = [], []
        pieces = self._processor.encode(cleaned, out_type=str)
        for id, piece in zip(self._processor.encode(cleaned), pieces, strict=True):
            if _ends_in_digit_comma(piece):
                parts = self._split_digit_comma(piece)
                new_ids += map(self._processor.piece_to_id, parts)
                new_pieces += parts
            else:
                new_ids.append(id)
                new_pieces.append(piece)
        return new_ids, new_pieces

    def _split_digit_comma(self, piece: str) -> list[str]:
        """The pieces of a piece that ends in a digit and a comma.

        Encoding its number anew puts a marker in front, which goes again if the piece had none. (The original
        means to do that as well, but compares with the marker's bytes, which nothing equals in Python 3. The
        released vocabulary has no such piece.)
        """
        parts = self._processor.encode(piece[:-1].replace(MARKER, ""), out_type=str)
        if parts and parts[0].startswith(MARKER) and not piece.startswith(MARKER):
            parts[:1] = [parts[0][1:]] if len(parts[0]) > 1 else []
        return [*parts, ","]

    def _visible_char_spans(
        self, cleaned: str, origins: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Spans in the original of the characters that pieces consist of, markers left out.

        The model has a normaliser of its own, whose offsets lead from its output to the cleaned text; `origins`
        lead from there to the original.
        """
        normalized, starts = self._processor.normalize(cleaned, with_offsets=True)
        spans = []
        end = len(cleaned)
        for position in reversed(range(len(normalized))):
            if starts[position] < starts[position + 1]:
                end = starts[position + 1]
            if normalized[position] != MARKER:
                spans.append((origins[starts[position]][0], origins[end - 1][1]))
        spans.reverse()
        return spans

    def _special_id(self, piece: str, source: str) -> int:
        id = self._processor.piece_to_id(piece)
        if id == self.unk_id:
            raise UserError(
                f"{source}: has no piece {piece}; train it with <pad>, [CLS], [SEP] and [MASK]"
            )
        return id


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


def _clean_with_origins(text: str, do_lower_case: bool) -> tuple[str, list[tuple[int, int]]]:
    """`clean_text`, and for each of its characters the (start, end) in `text` that it comes from."""
    _check_is_text(text)
    text = _LONE_SURROGATE.sub("\ufffd", text)
    chars, origins = [], []
    previous_end = None
    for word in _WORD.finditer(text):
        if previous_end is not None:
            chars.append(" ")
            origins.append((previous_end, word.start()))
        previous_end = word.end()
        for position in range(word.start(), word.end()):
            # Decomposing one by one gives what decomposing the whole gives, but for the order of accents.
            for char in unicodedata.normalize("NFKD", text[position]):
                if not unicodedata.combining(char):
                    chars.append(char)
                    origins.append((position, position + 1))
                elif origins:
                    origins[-1] = (origins[-1][0], position + 1)
    cleaned = "".join(chars)
    if do_lower_case:
        # As a whole, for final sigma; "İ", whose lower case is longer, has lost its dot by now.
        cleaned = cleaned.lower()
    assert len(cleaned) == len(origins)
    return cleaned, origins


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


def _visible_length(piece: str) -> int:
    """Characters of a piece without markers."""
    return len(piece.replace(MARKER, ""))


def _ends_in_digit_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _check_is_text(text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"text must be str, got {type(text).__name__}; decode bytes as UTF-8 first")


def _load_processor(model_proto: bytes, source: str) -> sentencepiece.SentencePieceProcessor:
    # Nothing at all would be taken as "load later".
    try:
        if model_proto:
            return sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    except RuntimeError:
        pass
    raise UserError(f"{source}: is not a SentencePiece model")
