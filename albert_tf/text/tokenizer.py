"""Text -> token ids, with offsets into the original text.

`serving/in_graph/graph_tokenizer.py` has the same steps as TensorFlow operations, for exported models.

Special tokens are inserted by id only: "[CLS]" inside a text is text, unless the rules (`rules.py`) say otherwise.
TensorFlow is imported for remote paths only, so that processes that prepare data start without it.
"""

import abc
import functools
import hashlib
import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import sentencepiece

from albert_tf.core.errors import UserError, first_line
from albert_tf.core.files import AnyPath, parse_json, read_bytes, write_files
from albert_tf.text import added_tokens, wordpiece
from albert_tf.text.added_tokens import AddedToken
from albert_tf.text.model_inputs import Texts, model_inputs
from albert_tf.text.rules import TokenizerRules
from albert_tf.text.visible import visible_token_spans

MARKER = "▁"  # U+2581: SentencePiece writes it for the space before a word
WORD_START_RULES = ("original", "marker")
_PARTS = re.compile(r"\s+|\S")  # \s is what str.split() splits at
_LONGEST_RUN = 1000  # characters of an unknown token that are encoded
_NOT_ASCII = re.compile("[^\x00-\x7f]+")
# Half a character: JSON can contain it, UTF-8 cannot encode it.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ENGLISH_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')  # as in the original: without ' < = >


def clean_text(text: str, *, do_lower_case: bool, keep_accents: bool = False) -> str:
    """Collapses white space, decomposes compatibility forms, removes accents and optionally lower-cases the text.

    White space comes first, so spaces that the decomposition makes ("´" becomes a space and an accent) stay. With
    `keep_accents`, accents and compatibility forms stay. Half a surrogate pair counts as U+FFFD. A TypeError if the
    text is not a str. Example: " Ｃａｆé \\t ﬁn" -> "cafe fin"

    Source: tokenization.py:33-50 (`preprocess_text`); `keep_accents` exists in XLNet and transformers.
    """
    check_text(text)
    text = " ".join(text.split())
    if not text.isascii():
        text = _LONE_SURROGATE.sub("\ufffd", text)
        text = text if keep_accents else _base_form(text)
    return text.lower() if do_lower_case else text


def check_text(text: str) -> None:
    """Raises a TypeError for a value that is not a str."""
    if not isinstance(text, str):
        hint = "; decode bytes as UTF-8 first" if isinstance(text, bytes) else ""
        raise TypeError(f"text must be str, got {type(text).__name__}{hint}")


def clean_with_origins(
    text: str, *, do_lower_case: bool, keep_accents: bool = False
) -> tuple[str, list[tuple[int, int]]]:
    """`clean_text`, with the (start, end) in `text` that each character of the result comes from."""
    cleaned = clean_text(text, do_lower_case=do_lower_case, keep_accents=keep_accents)
    first = len(text) - len(text.lstrip())
    parts = []
    for match in _PARTS.finditer(text.strip()):
        is_space = match[0].isspace()
        length = 1 if is_space else _cleaned_length(match[0], do_lower_case, keep_accents)
        parts.append((first + match.start(), first + match.end(), length))
    origins = wordpiece.origins_of(parts)
    assert len(cleaned) == len(origins)
    return cleaned, origins


def _base_form(text: str) -> str:
    """The compatibility form without accents; of a text, it is that of its characters one after the other."""
    decomposed = unicodedata.normalize("NFKD", text)
    combining = unicodedata.combining
    return _NOT_ASCII.sub(
        lambda match: "".join([char for char in match[0] if not combining(char)]), decomposed
    )


@functools.cache
def _cleaned_length(char: str, do_lower_case: bool, keep_accents: bool) -> int:
    char = char if keep_accents else _base_form(char)
    return len(char.lower() if do_lower_case else char)  # "İ" in lower case is two characters


def is_word_start(token: str) -> bool:
    """Whether a token starts a word by the original's rule, made for English.

    A token continues a word only if it has no marker and consists of English letters and punctuation other
    than "'", "<", "=" and ">". So every unmarked digit starts a word, and so does a single punctuation mark.

    Source: create_pretraining_data.py:393-407 (`_is_start_piece_sp`). The original also lists "€" and "£" as bytes,
    which equal no token in Python 3; here they start a word because they are not English letters.
    """
    continues_word = all(char.lower() in _ENGLISH_LETTERS | _PUNCTUATION for char in token)
    return token.startswith((MARKER, "<")) or token in _PUNCTUATION or not continues_word


class ModelFolders(Protocol):
    """Reads and writes the vocabularies of models: `formats/model_tokenizer.py`, whose package is above this one."""

    def load_tokenizer(self, path: AnyPath, do_lower_case: bool | None) -> "Tokenizer": ...

    def vocabulary_files(self, tokenizer: "Tokenizer", max_length: int | None) -> dict: ...


class Tokenizer(abc.ABC):
    """A vocabulary of either kind, as every program uses it: text -> token ids, and back.

    Attributes:
      sha256: hexadecimal hash of `content`.
      file_name: the usual name of such a file in the folder of a model.
      vocab_size: number of tokens, V.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens; also as `pad_token_id` and so on.
      max_length: the most tokens that the model can read; None if it is not known.
      added_tokens: the tokens with `text`, `id` and `kind` that transformers added, and that are found in texts.
      rules: what the tokenizer of a model of others does differently.
      added_ids: the ids of the texts that are found as added tokens, also by their lower case.
      found_special_tokens: the special tokens that are found in texts, by `rules`.
      space_id: the id of the token for white space before an added token, None if there is none.

    Raises:
      UserError: the bytes are not a vocabulary of this kind, or a special token is missing.
    """

    file_name: ClassVar[str]
    # Names of such files in the folder of any model, a regular expression.
    file_names: ClassVar[str]
    # Whether the files of transformers say how text is cleaned and split, as they do for BERT; otherwise the vocabulary
    # or this class knows it.
    is_described_by_transformers: ClassVar[bool] = False
    _needs_special_tokens: ClassVar[str]
    model_folders: ClassVar[ModelFolders | None] = (
        None  # set by that module, which albert_tf.Tokenizer loads
    )

    vocab_size: int
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    max_length: int | None = None
    space_id: int | None = None

    def __init__(
        self,
        content: bytes,
        *,
        do_lower_case: bool = True,
        keep_accents: bool = False,
        rules: TokenizerRules | None = None,
        source: str = "vocabulary",
    ):
        self.content = content
        self.do_lower_case = do_lower_case
        self.keep_accents = keep_accents
        self.rules = rules or TokenizerRules()
        self.sha256 = hashlib.sha256(content).hexdigest()
        self._load(source)
        self.added_tokens = [
            AddedToken(text, self.token_to_id(text), kind)
            for text, kind in self.kinds_of_added_tokens(content).items()
        ]
        self.found_special_tokens = self.special_tokens() if self.rules.finds_special_tokens else []
        self._find_added_tokens()

    # --- What a kind of vocabulary defines; `KINDS` lists the kinds ---

    @staticmethod
    @abc.abstractmethod
    def recognizes(content: bytes) -> bool:
        """Whether the content of a file is a vocabulary of this kind."""

    @staticmethod
    def content_of_json(values: Mapping[str, Any], source: str) -> bytes:
        """The vocabulary in a `tokenizer.json` as the content of a file; b"" if it is of another kind."""
        del values, source
        return b""

    @staticmethod
    def cleaning_of_json(values: Mapping[str, Any]) -> dict[str, Any]:
        """How such a `tokenizer.json` cleans text, under the names of `tokenizer_config.json`."""
        del values
        return {}

    @staticmethod
    @abc.abstractmethod
    def kinds_of_added_tokens(content: bytes) -> dict[str, int]:
        """The kinds (`added_tokens`) of the tokens of a vocabulary that are found in texts, by the tokens."""

    @staticmethod
    @abc.abstractmethod
    def with_tokens(
        content: bytes, kinds: Mapping[str, int], new_tokens: Sequence[AddedToken], source: str
    ) -> bytes:
        """A vocabulary in which some tokens have these kinds, and with new tokens after its own."""

    @abc.abstractmethod
    def _load(self, source: str) -> None:
        """Reads `content`."""

    @abc.abstractmethod
    def _encode_part(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids and spans of a text without added tokens."""

    @abc.abstractmethod
    def id_to_token(self, id: int) -> str:
        """The token of an id, with its marker."""

    @abc.abstractmethod
    def token_to_id(self, token: str) -> int:
        """The id of a token, `unk_id` if the vocabulary does not have it."""

    @abc.abstractmethod
    def clean(self, text: str) -> str:
        """Cleans a text, before its tokens are looked up in the vocabulary or it is joined with other texts."""

    @abc.abstractmethod
    def _encode_cleaned(self, texts: list[str]) -> list[list[int]]:
        """The ids of cleaned texts."""

    @abc.abstractmethod
    def _decode(self, ids: list[int]) -> str:
        """The text of ids."""

    @abc.abstractmethod
    def _is_word_start(self, token: str, rule: str) -> bool:
        """Whether a token starts a word."""

    # --- What all kinds have ---

    def _find_added_tokens(self) -> None:
        """Prepares what finds the added tokens in a text, and the special tokens that the rules find there, too."""
        tokens = {token.text: token for token in self.added_tokens}
        for text in self.found_special_tokens:
            tokens[text] = AddedToken(text, self.token_to_id(text), added_tokens.SPECIAL)
        self._added = added_tokens.pattern_of(tokens.values(), self.do_lower_case)

        ids = {text: token.id for text, token in tokens.items()}
        ids_in_lower_case = {added_tokens.in_lower_case(text): id for text, id in ids.items()}
        self.added_ids = ids_in_lower_case | ids

    @property
    def cleaning(self) -> dict[str, bool]:
        """The arguments `do_lower_case` and `keep_accents`, which say how text is cleaned."""
        return {"do_lower_case": self.do_lower_case, "keep_accents": self.keep_accents}

    @property
    def pad_token_id(self) -> int:
        """`pad_id`, under its name in transformers, as the four below."""
        return self.pad_id

    @property
    def unk_token_id(self) -> int:
        """`unk_id`."""
        return self.unk_id

    @property
    def cls_token_id(self) -> int:
        """`cls_id`."""
        return self.cls_id

    @property
    def sep_token_id(self) -> int:
        """`sep_id`."""
        return self.sep_id

    @property
    def mask_token_id(self) -> int:
        """`mask_id`."""
        return self.mask_id

    @staticmethod
    def from_bytes(content: bytes, **options: Any) -> "Tokenizer":
        """The tokenizer of a vocabulary of either kind; arguments and errors are those of `Tokenizer`."""
        if content.startswith(b"{"):
            content = _content_of_json(content, options)
        for kind in KINDS:
            if kind.recognizes(content):
                return kind(content, **options)
        raise UserError(f"{options.get('source', 'vocabulary')}: is no vocabulary of a known kind")

    @classmethod
    def from_pretrained(cls, path: AnyPath, *, do_lower_case: bool | None = None) -> "Tokenizer":
        """The vocabulary of a model, with the case that the model was trained with.

        The weights of the model are not read.

        Args:
          path: the model, in any layout that `load_pretrained` takes.
          do_lower_case: whether to lower-case text; None uses the value in the model's folder, or true if it has none.

        Raises:
          UserError: there is no such model, no vocabulary came with it, or the vocabulary is not the model's.
        """
        return _model_folders().load_tokenizer(path, do_lower_case)

    def save_pretrained(self, folder: AnyPath) -> None:
        """Writes the vocabulary and the files with which transformers tokenizes, as `save_pretrained` of a model."""
        contents = _model_folders().vocabulary_files(self, self.max_length)
        write_files(str(folder), contents)

    @classmethod
    def from_file(
        cls,
        path: AnyPath,
        *,
        do_lower_case: bool = True,
        keep_accents: bool = False,
        rules: TokenizerRules | None = None,
    ) -> "Tokenizer":
        """The vocabulary in a file, a SentencePiece model or a WordPiece vocabulary.

        Args:
          path: a file such as `spiece.model`, `30k-clean.model` or `vocab.txt`; paths with :// are read through
            TensorFlow. Tokens that files of transformers beside it add to the vocabulary belong to it.
          do_lower_case: whether to lower-case text; false for a cased model.
          keep_accents: whether to keep accents, which the original removes.
          rules: what the tokenizer of a model of others does differently.

        Raises:
          UserError: the file cannot be read, is not a vocabulary, or lacks a special token.
        """
        path = str(path)
        options: dict[str, Any] = {
            "do_lower_case": do_lower_case,
            "keep_accents": keep_accents,
            "rules": rules,
            "source": path,
        }
        tokenizer = cls.from_bytes(read_bytes(path), **options)
        folder = os.path.dirname(path)
        kinds, new_tokens = added_tokens.in_folder(folder, tokenizer.vocabulary())
        if not kinds and not new_tokens:
            return tokenizer
        content = tokenizer.with_tokens(tokenizer.content, kinds, new_tokens, folder)
        return type(tokenizer)(content, **options)

    def __call__(
        self,
        texts: Texts,
        pairs: Texts | None = None,
        *,
        max_length: int | None = None,
        padding: bool | str = True,
        truncation: bool | str = True,
        return_tensors: str = "np",
    ) -> dict[str, Any]:
        """The inputs of a model: the ids of texts, or of pairs of texts, with [CLS] and [SEP].

        Args:
          texts: one text, which is a batch of one, or several.
          pairs: the second texts; one without tokens counts as missing.
          max_length: the most tokens of a sequence; None takes the attribute, which `from_pretrained` sets.
          padding: `True` pads to the longest sequence, "max_length" to that length.
          truncation: whether longer sequences are cut, the longer text first; if not, they are an error.
          return_tensors: "np" for arrays, "tf" for tensors.

        Returns:
          `input_ids`, `input_mask` and `segment_ids`, int32 [B, L]; without padding, lists of lists.

        Raises:
          UserError: an argument is none of these, or a text does not fit.
        """
        max_length = max_length or self.max_length
        inputs = model_inputs(self, texts, pairs, max_length, padding, truncation)
        if return_tensors not in ("np", "tf"):
            raise UserError(f"return_tensors must be 'np' or 'tf', got {return_tensors!r}")
        if return_tensors == "np":
            return inputs
        import tensorflow as tf

        return {name: tf.constant(values) for name, values in inputs.items()}

    def cut(self, ids: Any, length: int) -> Any:
        """The tokens of a text, a list or an array, that are kept if there is room for `length` of them."""
        if self.rules.truncation_side == "left":
            return ids[max(0, len(ids) - length) :]
        return ids[:length]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens.

        Source: tokenization.py:53-96 (`encode_pieces`, `encode_ids`); :200-350 (`FullTokenizer`) for WordPiece.
        """
        return self._encode([text])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[np.ndarray]:
        """The ids of many texts, int32 [tokens] each, faster than one by one; uses one processor core."""
        if isinstance(texts, str | bytes):
            raise TypeError("texts must be several texts, got one; use encode(text)")
        return [np.array(ids, np.int32) for ids in self._encode(list(texts))]

    def _encode(self, texts: list[str]) -> list[list[int]]:
        if not self._added:
            return self._encode_cleaned(list(map(self.clean, texts)))
        return [[id for ids, _ in self._encode_parts(text) for id in ids] for text in texts]

    def _encode_parts(self, text: str) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
        """The ids and spans of each part of a text: added tokens, and the text between them."""
        assert self._added
        start = 0
        all_parts = self._added.split(text)
        for number, part in enumerate(all_parts):
            end = start + len(part)
            if number % 2:
                id = self.added_ids.get(part)
                if id is None:
                    id = self.added_ids[added_tokens.in_lower_case(part)]
                yield [id], [(start, end)]
            elif part:
                ids, spans = self._encode_part(part)
                # Before [SEP] and the like, transformers drops white space.
                is_before_added = (
                    end < len(text) and all_parts[number + 1] not in self.found_special_tokens
                )
                if is_before_added and part[-1].isspace() and self.space_id is not None:
                    ids, spans = [*ids, self.space_id], [*spans, (len(part), len(part))]
                yield ids, [(start + first, start + last) for first, last in spans]
            start = end

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of a text, and the characters that each token stands for.

        Example, of a SentencePiece model:
          "Ｃafé, 1999," -> "▁cafe" "," "▁1999" "," at (0, 4), (4, 5), (6, 10), (10, 11)

        Spans neither begin nor end with white space or another invisible character (`text/visible.py`), such as
        U+200B, unless a token has no other. A token without text (the marker alone) has an empty span where the next
        token's text begins. Accents that are in no token belong to the character before them. If one character has
        several tokens ("½" becomes "1", "⁄" and "2", or the bytes of a model trained with byte_fallback), each of them
        has that character's span.

        Returns:
          ids, equal to `encode(text)`, and for each id its (start, end); `text[start:end]` is the token's text.
        """
        if self._added:
            parts = list(self._encode_parts(text))
            ids = [id for ids, _ in parts for id in ids]
            spans = [span for _, spans in parts for span in spans]
        else:
            ids, spans = self._encode_part(text)
        return ids, visible_token_spans(text, spans)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without padding, [CLS], [SEP] and [MASK]; an unknown token is "⁇", in WordPiece [UNK]."""
        skipped = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        return self._decode([int(id) for id in ids if int(id) not in skipped])

    def special_tokens(self) -> list[str]:
        """The tokens of padding, unknown words, [CLS], [SEP] and [MASK]."""
        return list(map(self.id_to_token, self.special_ids()))

    def special_ids(self) -> list[int]:
        """The ids of `special_tokens`."""
        return [self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id]

    def vocabulary(self) -> list[str]:
        """All tokens by id."""
        return [self.id_to_token(id) for id in range(self.vocab_size)]

    def word_starts(self, rule: str = "original") -> np.ndarray:
        """Which tokens start a word, for whole-word and n-gram masking, bool [V].

        The rule `original` is `is_word_start`, for English; `marker` selects tokens that begin with the marker, for
        languages in which the original's rule makes every token a word. In WordPiece, both select the tokens that do
        not begin with "##".
        """
        if rule not in WORD_START_RULES:
            raise UserError(f"rule must be one of {', '.join(WORD_START_RULES)}; got {rule!r}")
        return np.array([self._is_word_start(token, rule) for token in self.vocabulary()])

    def id_within_word(self, id: int) -> int:
        """The id of a token's text within a word, for text after a mask; -1 for a token without text."""
        return id

    def _find_special_ids(self, padding: str, source: str) -> None:
        tokens = (padding, "[CLS]", "[SEP]", "[MASK]")
        ids = {token: self.token_to_id(token) for token in tokens}
        if missing := [token for token in tokens if ids[token] == self.unk_id]:
            raise UserError(f"{source}: has no token {missing[0]}; {self._needs_special_tokens}")
        self.pad_id, self.cls_id, self.sep_id, self.mask_id = ids.values()


def _model_folders() -> ModelFolders:
    """What reads and writes the folders of models."""
    if not Tokenizer.model_folders:
        raise RuntimeError("nothing reads models yet: from albert_tf import Tokenizer")
    return Tokenizer.model_folders


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

    @staticmethod
    def kinds_of_added_tokens(content: bytes) -> dict[str, int]:
        return added_tokens.kinds_in_sentencepiece(content)

    @staticmethod
    def with_tokens(
        content: bytes, kinds: Mapping[str, int], new_tokens: Sequence[AddedToken], source: str
    ) -> bytes:
        del source  # nothing can be wrong
        return added_tokens.marked_sentencepiece(content, kinds, new_tokens)

    def _load(self, source: str) -> None:
        self._processor = _load_processor(self.content, source)
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
        all_ids = self._processor.encode(texts, num_threads=1)
        replacements = self._replacements
        for row, ids in enumerate(all_ids):
            if self.unknown_may_end_in_comma and self.unk_id in ids:
                pieces = self._processor.encode(texts[row], out_type="immutable_proto").pieces
                all_ids[row] = [id for piece in pieces for _, id in self._tokens_of(piece)]
            elif not replacements.keys().isdisjoint(ids):
                all_ids[row] = [new for id in ids for new in replacements.get(id, (id,))]
        return all_ids

    def _encode_part(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        cleaned, origins = clean_with_origins(text, **self.cleaning)
        parts = self._encoded_parts(cleaned)
        cleaned = "".join(cleaned[part] for part in parts)
        origins = [origin for part in parts for origin in origins[part]]
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        after = (len(text), len(text))  # the span of the token that follows
        for piece in reversed(self._processor.encode(cleaned, out_type="immutable_proto").pieces):
            surface = cleaned[piece.begin : piece.end]
            start = piece.end - len(surface.lstrip())
            end = piece.begin + len(surface.rstrip())
            tokens = self._tokens_of(piece)
            for place, (token, id) in reversed(list(enumerate(tokens))):
                length = len(token.replace(MARKER, ""))
                first = max(start, end - length) if place else start
                if first < end:
                    after = origins[first][0], origins[end - 1][1]
                # Without characters of its own, it is a part of a character of the next token, or a marker.
                ids.append(id)
                spans.append(after if length else (after[0], after[0]))
                end = first
        return ids[::-1], spans[::-1]

    def _encoded_parts(self, cleaned: str) -> list[slice]:
        """The parts of a text that are encoded: all but the middle of long runs of unknown characters.

        Such a run is one unknown token, however long it is, for which SentencePiece takes a time that grows with the
        square of the length: 13 seconds for 200,000 characters.
        """
        if len(cleaned) <= _LONGEST_RUN:
            return [slice(None)]
        runs = self._unknown_run.finditer(cleaned)
        if max((len(run[0]) for run in runs), default=0) <= _LONGEST_RUN:
            return [slice(None)]
        parts = []
        start = position = 0
        for is_unknown, characters in itertools.groupby(cleaned, self._is_unknown):
            run = "".join(characters)
            if is_unknown and len(run) > _LONGEST_RUN and self._stays_unknown(run):
                half = _LONGEST_RUN // 2
                parts.append(slice(start, position + half))
                start = position + len(run) - half
            position += len(run)
        return [*parts, slice(start, None)]

    @functools.cached_property
    def _known_characters(self) -> set[str]:
        """All characters of tokens, and the blank."""
        return {" ", *"".join(self.vocabulary())}

    @functools.cached_property
    def _unknown_run(self) -> re.Pattern:
        """A run of characters that are in no token; SentencePiece may still know other forms of them."""
        known = re.escape("".join(self._known_characters))
        return re.compile(f"[^{known}]+")

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


class WordPieceTokenizer(Tokenizer):
    """The vocab.txt of a BERT or of a Chinese ALBERT, with the words of the original's `BasicTokenizer`."""

    file_name = "vocab.txt"
    file_names = r"vocab.*\.txt"
    is_described_by_transformers = True
    _needs_special_tokens = "a WordPiece vocabulary needs [PAD], [UNK], [CLS], [SEP] and [MASK]"

    @staticmethod
    def recognizes(content: bytes) -> bool:
        return wordpiece.is_wordpiece(content)

    @staticmethod
    def content_of_json(values: Mapping[str, Any], source: str) -> bytes:
        return added_tokens.content_of_json(values, source)

    @staticmethod
    def cleaning_of_json(values: Mapping[str, Any]) -> dict[str, Any]:
        normalizer = values["normalizer"]
        return {
            "do_lower_case": normalizer.get("lowercase"),
            "strip_accents": normalizer.get("strip_accents"),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars"),
        }

    @staticmethod
    def kinds_of_added_tokens(content: bytes) -> dict[str, int]:
        return added_tokens.kinds_in_wordpiece(content)

    @staticmethod
    def with_tokens(
        content: bytes, kinds: Mapping[str, int], new_tokens: Sequence[AddedToken], source: str
    ) -> bytes:
        return added_tokens.marked_wordpiece(content, kinds, new_tokens, source)

    def _load(self, source: str) -> None:
        self._tokens = wordpiece.read_tokens(self.content, source)
        self._ids = {token: id for id, token in enumerate(self._tokens)}
        self._words = wordpiece.WordTokens(self._tokens)
        self.vocab_size = len(self._tokens)
        self.unk_id = self._ids[wordpiece.UNKNOWN]
        self._find_special_ids("[PAD]", source)

    def __reduce__(self):
        # The cache of words is not sent to other processes.
        options = {**self.cleaning, "rules": self.rules}
        new = functools.partial(WordPieceTokenizer, self.content, **options)
        return new, (), {"max_length": self.max_length}

    def id_to_token(self, id: int) -> str:
        return self._tokens[int(id)]

    def token_to_id(self, token: str) -> int:
        return self._ids.get(token, self.unk_id)

    def clean(self, text: str) -> str:
        check_text(text)
        return text

    @property
    def _word_rules(self) -> dict[str, bool]:
        """The arguments of `split_words`."""
        return {
            **self.cleaning,
            "strips_accents": self.rules.strips_accents,
            "separates_chinese": self.rules.separates_chinese,
        }

    def _encode_cleaned(self, texts: list[str]) -> list[list[int]]:
        ids_of, rules = self._words.__getitem__, self._word_rules
        split = (wordpiece.split_words(text, **rules).split() for text in texts)
        return [list(itertools.chain.from_iterable(map(ids_of, words))) for words in split]

    def _encode_part(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        check_text(text)
        split, origins = wordpiece.split_with_origins(text, **self._word_rules)
        visible = [origin for char, origin in zip(split, origins, strict=True) if char.strip()]
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        first = 0
        for word in split.split():
            ids_of_word = self._words[word]
            ids += ids_of_word
            is_unknown = ids_of_word == (self.unk_id,)  # an unknown token replaces a whole word
            for id in ids_of_word:
                token = word if is_unknown else self._tokens[id]
                last = first + len(token.removeprefix(wordpiece.CONTINUES_WORD)) - 1
                spans.append((visible[first][0], visible[last][1]))
                first = last + 1
        return ids, spans

    def _decode(self, ids: list[int]) -> str:
        text = " ".join(map(self.id_to_token, ids))
        return text.replace(f" {wordpiece.CONTINUES_WORD}", "")

    def _is_word_start(self, token: str, rule: str) -> bool:
        return not token.startswith(wordpiece.CONTINUES_WORD)


# A folder's vocabulary is looked for in this order.
KINDS: tuple[type[Tokenizer], ...] = (SentencePieceTokenizer, WordPieceTokenizer)


def _content_of_json(content: bytes, options: Mapping[str, Any]) -> bytes:
    """The vocabulary in the content of a `tokenizer.json`; b"" if it is of no known kind."""
    source = options.get("source", "")
    values = parse_json(content, source)
    for kind in KINDS:
        vocabulary = kind.content_of_json(values, source)
        if vocabulary:
            # The rules of a model's folder say how Chinese is split; without them, it must be as usual.
            if options.get("rules") is None:
                added_tokens.check_separates_chinese(values, source)
            return vocabulary
    return b""
