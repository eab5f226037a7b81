"""The vocab.txt of a BERT or of a Chinese ALBERT."""

import functools
import itertools
from collections.abc import Mapping
from typing import Any

from albert_tf.text import wordpiece, wordpiece_json
from albert_tf.text.added_tokens import Vocabulary, texts_of_all
from albert_tf.text.cleaning import check_text
from albert_tf.text.tokenizer.base import Tokenizer


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
    def vocabulary_of_json(values: Mapping[str, Any], source: str) -> Vocabulary | None:
        return wordpiece_json.vocabulary_of(values, source)

    @staticmethod
    def cleaning_of_json(values: Mapping[str, Any]) -> dict[str, Any]:
        normalizer = values["normalizer"]
        return {
            "do_lower_case": normalizer.get("lowercase"),
            "strip_accents": normalizer.get("strip_accents"),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars"),
        }

    def _load(self, source: str) -> None:
        tokens_of_file = wordpiece.read_tokens(self.content, source)
        self._tokens = texts_of_all(tokens_of_file, self.added_tokens, source)
        self._ids = {token: id for id, token in enumerate(self._tokens)}
        self._words = wordpiece.WordTokens(tokens_of_file)
        self.vocab_size = len(self._tokens)
        self.unk_id = self._ids[wordpiece.UNKNOWN]
        self._find_special_ids("[PAD]", source)

    def __reduce__(self):
        # The cache of words is not sent to other processes.
        options = {**self.cleaning, "rules": self.rules, "added_tokens": self.added_tokens}
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
        ids_of = self._words.__getitem__
        rules = self._word_rules
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
