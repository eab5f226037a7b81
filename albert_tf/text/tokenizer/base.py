"""What all kinds of tokenizers do: read a vocabulary, split a text at added tokens, make the inputs of a model."""

import abc
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.core.files import AnyPath, parse_json, read_bytes, write_files
from albert_tf.text import earlier_vocabularies, wordpiece_json
from albert_tf.text.added_tokens import (
    PLAIN,
    SPECIAL,
    AddedToken,
    Vocabulary,
    by_id,
    in_folder,
    in_lower_case,
    pattern_of,
)
from albert_tf.text.model_inputs import Texts, model_inputs
from albert_tf.text.rules import TokenizerRules
from albert_tf.text.visible import visible_token_spans
from albert_tf.text.word_starts import WORD_START_RULES


class ModelFolders(Protocol):
    """Reads and writes the vocabularies of models: `formats/model_tokenizer.py`, whose package is above this one."""

    def load_tokenizer(self, path: AnyPath, do_lower_case: bool | None) -> "Tokenizer": ...

    def vocabulary_files(self, tokenizer: "Tokenizer", max_length: int | None) -> dict: ...


class Tokenizer(abc.ABC):
    """A vocabulary of either kind, as every program uses it: text -> token ids, and back.

    Attributes:
      content: that of the vocabulary's file, without the added tokens.
      added_tokens: the tokens, with `text`, `id` and `kind`, that were added to it, in the order of their ids.
      sha256: hexadecimal hash of both.
      file_name: the usual name of such a file in the folder of a model.
      vocab_size: number of tokens, V, with the added ones.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens; also as `pad_token_id` and so on.
      max_length: the most tokens that the model can read; None if it is not known.
      rules: what the tokenizer of a model of others does differently.
      added_ids: the ids of the texts that are found as added tokens, also by their lower case.
      found_special_tokens: the special tokens that are found in texts, by `rules`.
      space_id: the id of the token for white space before some added tokens, None if there is none.
      ids_after_space: the ids of these added tokens: plain ones, but not in a tokenizer of others.

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
    # The two attributes below are set from above: a class does not import its subclasses, nor this package `formats`.
    kinds: ClassVar[tuple[type["Tokenizer"], ...]]
    model_folders: ClassVar[ModelFolders | None] = None  # `albert_tf.Tokenizer` loads it

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
        added_tokens: Iterable[AddedToken] = (),
        do_lower_case: bool = True,
        keep_accents: bool = False,
        rules: TokenizerRules | None = None,
        source: str = "vocabulary",
    ):
        self.content = content
        self.added_tokens = by_id(added_tokens)
        self.do_lower_case = do_lower_case
        self.keep_accents = keep_accents
        self.rules = rules or TokenizerRules()
        self.sha256 = _hash_of(content, self.added_tokens)
        self._load(source)
        self.found_special_tokens = self.special_tokens() if self.rules.finds_special_tokens else []

        tokens = self.found_tokens()
        self._added = pattern_of(tokens, self.do_lower_case)
        ids = {token.text: token.id for token in tokens}
        ids_in_lower_case = {in_lower_case(text): id for text, id in ids.items()}
        self.added_ids = ids_in_lower_case | ids
        # Tokenizers of others, which find special tokens, split a text at white space first.
        keeps_space = not self.rules.finds_special_tokens
        self.ids_after_space = {token.id for token in tokens if token.kind == PLAIN and keeps_space}

    # --- What a kind of vocabulary defines; `kinds` lists the kinds ---

    @staticmethod
    @abc.abstractmethod
    def recognizes(content: bytes) -> bool:
        """Whether the content of a file is a vocabulary of this kind."""

    @staticmethod
    def vocabulary_of_json(values: Mapping[str, Any], source: str) -> Vocabulary | None:
        """The vocabulary in a `tokenizer.json`; None if it is of another kind."""
        del values, source
        return None

    @staticmethod
    def cleaning_of_json(values: Mapping[str, Any]) -> dict[str, Any]:
        """How such a `tokenizer.json` cleans text, under the names of `tokenizer_config.json`."""
        del values
        return {}

    def not_found_already(self, tokens: list[AddedToken]) -> list[AddedToken]:
        """Tokens that files list as added, without those that this kind finds in texts anyway."""
        return tokens

    @abc.abstractmethod
    def _load(self, source: str) -> None:
        """Reads `content`, and puts `added_tokens` among or after its tokens."""

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

    def found_tokens(self) -> list[AddedToken]:
        """The tokens that are found in a text before it is cleaned: added ones, and special ones by the rules."""
        tokens = {token.text: token for token in self.added_tokens if token.is_found}
        for text in self.found_special_tokens:
            tokens[text] = AddedToken(text, self.token_to_id(text), SPECIAL)
        return list(tokens.values())

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
            vocabulary = _vocabulary_in_json(content, options)
        else:
            vocabulary = earlier_vocabularies.without_marks(content)
        options["added_tokens"] = [*vocabulary.added_tokens, *options.get("added_tokens", ())]

        for kind in Tokenizer.kinds:
            if kind.recognizes(vocabulary.content):
                return kind(vocabulary.content, **options)
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
            TensorFlow. `tokenizer_config.json` and other files of transformers beside it may list added tokens.
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
        tokens = tokenizer.added_in_folder(folder)
        if tokens == tokenizer.added_tokens:
            return tokenizer
        options["source"] = folder
        return type(tokenizer)(tokenizer.content, added_tokens=tokens, **options)

    def added_in_folder(self, folder: str) -> tuple[AddedToken, ...]:
        """The added tokens of this vocabulary in a folder: its own ones, and those that files in the folder list."""
        listed = in_folder(folder, self.vocabulary())
        if listed:
            listed = self.not_found_already(listed)
        return by_id([*self.added_tokens, *listed])

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
        """The ids and spans of each part of a text: added tokens, and the text between them.

        As in transformers, special tokens are found first, and white space at the ends of the text between them is
        dropped. Plain ones are found in what remains, where white space before them is a token (`space_id`).
        """
        assert self._added
        parts = self._added.split(text)  # at odd places, the added tokens
        start = 0
        is_after_plain = False
        for number, part in enumerate(parts):
            end = start + len(part)
            if number % 2:
                id = self._id_of_added(part)
                is_after_plain = id in self.ids_after_space
                yield [id], [(start, end)]
            elif part:
                ids, spans = self._encode_part(part)
                is_before_plain = (
                    number + 1 < len(parts)
                    and self._id_of_added(parts[number + 1]) in self.ids_after_space
                )
                is_inside = is_after_plain or len(ids) > 0
                has_space = is_before_plain and is_inside and part[-1].isspace()
                if has_space and self.space_id is not None:
                    ids = [*ids, self.space_id]
                    spans = [*spans, (len(part), len(part))]
                yield ids, [(start + first, start + last) for first, last in spans]
            start = end

    def _id_of_added(self, text: str) -> int:
        """The id of an added token as it was found in a text, perhaps in another case."""
        id = self.added_ids.get(text)
        return self.added_ids[in_lower_case(text)] if id is None else id

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


def _hash_of(content: bytes, added: Iterable[AddedToken]) -> str:
    """The hash of a vocabulary and of its added tokens; without any, that of the file alone."""
    digest = hashlib.sha256(content)
    for token in added:
        digest.update(json.dumps(token).encode())
    return digest.hexdigest()


def _vocabulary_in_json(content: bytes, options: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary in the content of a `tokenizer.json`; an empty one if it is of no known kind."""
    source = options.get("source", "")
    values = parse_json(content, source)
    for kind in Tokenizer.kinds:
        vocabulary = kind.vocabulary_of_json(values, source)
        if vocabulary:
            # The rules of a model's folder say how Chinese is split; without them, it must be as usual.
            if options.get("rules") is None:
                wordpiece_json.check_separates_chinese(values, source)
            return vocabulary
    return Vocabulary(b"")
