"""The `spiece.model` of an ALBERT."""

import functools
import itertools
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from albert_tf.core.errors import UserError, first_line
from albert_tf.text import wordpiece
from albert_tf.text.added_tokens import AddedToken, texts_of_all
from albert_tf.text.cleaning import clean_text, clean_with_origins
from albert_tf.text.tokenizer.base import Tokenizer
from albert_tf.text.word_starts import MARKER, is_word_start

_LONGEST_RUN = 1000  # characters of an unknown token that are encoded


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model with the text cleaning and the digit-comma rule of the original.

    The digit-comma rule: a token that ends in a digit and a comma ("▁1999,") is encoded again without the comma
    ("▁1999" ","), so that a number has the same token with and without a comma. `unknown_may_end_in_comma` says whether
    the rule can apply to unknown tokens.
    """

    file_name = "spiece.model"
    file_names = r".*\.(model|spm)"
    _needs_special_tokens = "train it with <pad>, [CLS], [SEP] and [MASK]"

    @staticmethod
    def recognizes(content: bytes) -> bool:
        """True for all but lines of tokens; whether the content is damaged shows when it is loaded."""
        return not wordpiece.is_wordpiece(content)

    def not_found_already(self, tokens: list[AddedToken]) -> list[AddedToken]:
        """Without user-defined pieces of the model, which transformers lists, too, and SentencePiece itself finds."""
        pieces = ModelProto.FromString(self.content).pieces
        return [
            token
            for token in tokens
            if token.id >= len(pieces)
            or pieces[token.id].type
            in (ModelProto.SentencePiece.NORMAL, ModelProto.SentencePiece.CONTROL)
        ]

    def model(self, source: str = "vocabulary") -> ModelProto:
        """The SentencePiece model with the added tokens: as user-defined pieces, or if hidden as control pieces."""
        model = ModelProto.FromString(self.content)
        texts_of_file = [piece.piece for piece in model.pieces]
        texts = texts_of_all(texts_of_file, self.added_tokens, source)
        for text in texts[len(texts_of_file) :]:
            model.pieces.add(piece=text, score=0, type=ModelProto.SentencePiece.CONTROL)
        for token in self.added_tokens:
            if token.is_found:
                model.pieces[token.id].type = ModelProto.SentencePiece.USER_DEFINED
                model.pieces[token.id].score = 0
        return model

    def _load(self, source: str) -> None:
        self._processor = _load_processor(self.content, source)
        if self.added_tokens:
            self._processor = _load_processor(self.model(source).SerializeToString(), source)
        try:
            self._examine(source)
        except (RuntimeError, LookupError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            reason = first_line(error)
            raise UserError(f"{source}: damaged SentencePiece model ({reason})") from None

    def _examine(self, source: str) -> None:
        self.vocab_size = self._processor.get_piece_size()
        self.unk_id = self._processor.unk_id()
        self._find_special_ids("<pad>", source)
        marker_id = self.token_to_id(MARKER)
        self.space_id = None if marker_id == self.unk_id else marker_id
        self._unknown_characters: dict[str, bool] = {}  # those that were looked up

        # What the digit-comma rule puts in place of a token of the vocabulary depends on that token only.
        self._replacements = {
            id: list(map(self.token_to_id, self._split_digit_comma(token)))
            for id, token in enumerate(self.vocabulary())
            if _ends_in_digit_comma(token)
        }
        # An unknown token's text can end in a comma only if the comma itself is unknown, or if the model splits
        # at white space only: in both cases the last token of a private-use character and a comma is unknown.
        self.unknown_may_end_in_comma = self._processor.encode("\ue000,")[-1] == self.unk_id

    def id_to_token(self, id: int) -> str:
        return self._processor.id_to_piece(int(id))

    def token_to_id(self, token: str) -> int:
        return self._processor.piece_to_id(token)

    def id_within_word(self, id: int) -> int:
        token = self.id_to_token(id)
        if token == MARKER:
            return -1
        unmarked_id = self.token_to_id(token.removeprefix(MARKER))
        return id if unmarked_id == self.unk_id else unmarked_id

    def clean(self, text: str) -> str:
        return clean_text(text, **self.cleaning)

    def _is_word_start(self, token: str, rule: str) -> bool:
        is_byte = self._processor.is_byte(self.token_to_id(token))
        # "<0xA4>" is not the first byte of a character in UTF-8.
        if is_byte and int(token[1:-1], 16) & 0xC0 == 0x80:
            return False
        return is_word_start(token) if rule == "original" else token.startswith(MARKER)

    def replacements(self) -> list[list[int]]:
        """The tokens that the digit-comma rule puts in place of each token, [V]; mostly the token itself."""
        return [self._replacements.get(id, [id]) for id in range(self.vocab_size)]

    def _encode_cleaned(self, texts: list[str]) -> list[list[int]]:
        texts = ["".join(text[part] for part in self._encoded_parts(text)) for text in texts]
        ids_of_texts = self._processor.encode(texts, num_threads=1)
        return [
            self._with_rule_of_commas(ids, text)
            for ids, text in zip(ids_of_texts, texts, strict=True)
        ]

    def _with_rule_of_commas(self, ids: list[int], text: str) -> list[int]:
        """The ids of a cleaned text after the digit-comma rule."""
        if self.unknown_may_end_in_comma and self.unk_id in ids:
            # The text of an unknown token decides, which ids do not tell.
            return [id for piece in self._pieces_of(text) for _, id in self._tokens_of(piece)]
        if self._replacements.keys().isdisjoint(ids):
            return ids
        return [new for id in ids for new in self._replacements.get(id, (id,))]

    def _pieces_of(self, cleaned: str) -> Any:
        """What SentencePiece finds in a text: pieces with `piece` (the token), `id`, `begin` and `end`."""
        return self._processor.encode(cleaned, out_type="immutable_proto").pieces

    def _encode_part(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        cleaned, origins = clean_with_origins(text, **self.cleaning)
        parts = self._encoded_parts(cleaned)
        cleaned = "".join(cleaned[part] for part in parts)
        origins = [origin for part in parts for origin in origins[part]]

        ids = []
        lengths = []  # of the tokens' texts
        places = []  # of the tokens in `cleaned`
        for piece in self._pieces_of(cleaned):
            tokens = self._tokens_of(piece)
            ids += [id for _, id in tokens]
            lengths_in_piece = [len(token.replace(MARKER, "")) for token, _ in tokens]
            lengths += lengths_in_piece
            # The blank before a word belongs to the piece, but not to its text.
            surface = cleaned[piece.begin : piece.end]
            start = piece.end - len(surface.lstrip())
            end = piece.begin + len(surface.rstrip())
            places += _places_in_piece(lengths_in_piece, start, end)
        return ids, _spans_of_places(places, lengths, origins, len(text))

    def _encoded_parts(self, cleaned: str) -> list[slice]:
        """The parts of a text that are encoded: all but the middle of long runs of unknown characters.

        Such a run is one unknown token, however long it is, for which SentencePiece takes a time that grows with the
        square of the length: 13 seconds for 200,000 characters.
        """
        whole = [slice(None)]
        if len(cleaned) <= _LONGEST_RUN:
            return whole
        lengths = [len(run[0]) for run in self._unknown_run.finditer(cleaned)]
        if max(lengths, default=0) <= _LONGEST_RUN:
            return whole

        half = _LONGEST_RUN // 2  # of 1,400 unknown characters, the first and the last 500 stay
        parts = []
        part_start = 0
        run_start = 0
        for is_unknown, characters in itertools.groupby(cleaned, self._is_unknown):
            run = "".join(characters)
            run_end = run_start + len(run)
            if is_unknown and len(run) > _LONGEST_RUN and self._stays_unknown(run):
                parts.append(slice(part_start, run_start + half))
                part_start = run_end - half
            run_start = run_end
        return [*parts, slice(part_start, None)]

    @functools.cached_property
    def _known_characters(self) -> set[str]:
        """All characters of tokens, and the blank."""
        return {" ", *"".join(self.vocabulary())}

    @functools.cached_property
    def _unknown_run(self) -> re.Pattern:
        """A run of characters that are in no token; SentencePiece may still know other forms of them."""
        characters = re.escape("".join(self._known_characters))
        return re.compile(f"[^{characters}]+")

    def _is_unknown(self, character: str) -> bool:
        """Whether a character is in no token, also after the normalization that SentencePiece does."""
        if character not in self._unknown_characters:
            is_known = character in self._known_characters
            ids = () if is_known else self._processor.encode(character)
            self._unknown_characters[character] = self.unk_id in ids
        return self._unknown_characters[character]

    def _stays_unknown(self, run: str) -> bool:
        """Whether no token knows what a run of unknown characters composes, as parts of Korean syllables do."""
        return not any(
            char in self._known_characters for char in unicodedata.normalize("NFKC", run)
        )

    def _decode(self, ids: list[int]) -> str:
        return self._processor.decode(ids)

    def _tokens_of(self, piece: Any) -> list[tuple[str, int]]:
        """The tokens, and their ids, of a piece of SentencePiece; an unknown one is given as its text."""
        if not _ends_in_digit_comma(piece.piece):
            return [(piece.piece, piece.id)]
        return [(part, self.token_to_id(part)) for part in self._split_digit_comma(piece.piece)]

    def _split_digit_comma(self, token: str) -> list[str]:
        """The tokens in place of a token that ends in a digit and a comma.

        Encoding its number again puts a marker in front, which is removed if the token had none. (The original intends
        this too, but compares with the marker's bytes, which equal nothing in Python 3. The released vocabulary has no
        such token.)
        """
        parts = self._processor.encode(token[:-1].replace(MARKER, ""), out_type=str)
        if parts and parts[0].startswith(MARKER) and not token.startswith(MARKER):
            parts[:1] = [parts[0][1:]] if len(parts[0]) > 1 else []
        return [*parts, ","]


def _places_in_piece(lengths: Sequence[int], start: int, end: int) -> list[tuple[int, int]]:
    """Where tokens of these lengths, which are one piece, stand in the cleaned text; the piece is at (start, end).

    Most pieces are one token. With the digit-comma rule, tokens take their characters from the end, and the first takes
    what remains. A token for which nothing remains has an empty place: it is a part of the next token's character.

    Examples, at (2, 7) and (0, 2):
      "▁1999," -> "▁1999" (2, 6), "," (6, 7)
      "▁21,", which a model makes of "㉑," -> "▁2" (0, 0), "1" (0, 1), "," (1, 2)
    """
    places = []
    for length in reversed(lengths[1:]):
        first = max(start, end - length)
        places.append((first, end))
        end = first
    places.append((start, end))
    return places[::-1]


def _spans_of_places(
    places: Sequence[tuple[int, int]],
    lengths: Sequence[int],
    origins: Sequence[tuple[int, int]],
    text_length: int,
) -> list[tuple[int, int]]:
    """The spans of tokens in a text, by their places in the cleaned text.

    Args:
      places: the tokens' (start, end) in the cleaned text.
      lengths: those of the tokens' texts, 0 for a marker alone.
      origins: the (start, end) in the text of each character of the cleaned text.
      text_length: that of the text.

    Examples, of "㉑," and " cat" with a marker of its own:
      "▁2" (0, 0), "1" (0, 1), "," (1, 2) -> (0, 1), (0, 1), (1, 2)
      "▁" (1, 1), "cat" (1, 4) -> (1, 1), (1, 4)
    """
    spans = []
    next_span = (text_length, text_length)
    # From the last token, because a token without a place of its own has the span of the next one.
    for (start, end), length in zip(reversed(places), reversed(lengths), strict=True):
        if start < end:
            next_span = (origins[start][0], origins[end - 1][1])
        is_marker = length == 0
        spans.append((next_span[0], next_span[0]) if is_marker else next_span)
    return spans[::-1]


def _ends_in_digit_comma(token: str) -> bool:
    return len(token) > 1 and token[-1] == "," and token[-2].isdigit()


def _load_processor(model_proto: bytes, source: str) -> sentencepiece.SentencePieceProcessor:
    # For SentencePiece, empty bytes mean "load later".
    try:
        if model_proto:
            return sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    except RuntimeError:
        pass
    kinds = "neither a SentencePiece model nor a WordPiece vocabulary with a line [UNK]"
    raise UserError(f"{source}: is {kinds}")
