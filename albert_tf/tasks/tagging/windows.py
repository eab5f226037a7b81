"""Converts sentences to windows of tokens, and a model's outputs for tokens to tags of words.

    words        Ann   lives  in  Wroclaw
    tokens  [CLS] ▁ann ▁lives ▁in ▁wro claw [SEP]
    word_numbers 0   1   2      3   4    0    0

A sentence becomes one text, which is tokenized as a whole. A word is represented by the first token whose visible text
begins in it.
If no token begins in a word (SentencePiece may join words that are written without spaces), the word continues the tag
of the word before it. A sentence that is too long for one sequence is cut into windows that overlap; a word belongs to
the window in which its token has the most context.
"""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks import sequences
from albert_tf.tasks.tagging import entities
from albert_tf.tasks.tagging.conll import Sentence
from albert_tf.tasks.tagging.settings import SEPARATORS
from albert_tf.text import wordpiece
from albert_tf.text.character_class import inside_class
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.visible import is_invisible, visible_parts

NUM_SPECIAL = 2  # [CLS] and [SEP]


@dataclasses.dataclass(frozen=True)
class WindowSettings:
    """How sentences are cut into windows; `word_separator` is a key of `SEPARATORS`, lengths include special tokens."""

    tokenizer: Tokenizer
    max_seq_length: int
    doc_stride: int
    word_separator: str = "space"

    @property
    def separator(self) -> str:
        """The text between two words."""
        return SEPARATORS[self.word_separator]


def make_windows(
    settings: WindowSettings, sentences: Sequence[tuple[int, Sentence]]
) -> FeatureTable:
    """The windows of some sentences, sentence by sentence, from left to right; each sentence has at least one.

    Args:
      sentences: the sentences with their indices in the data set; either all have tags or none has.

    Returns:
      A table with an example for every window. Sequences are int32, with one value per token:
        input_ids, segment_ids: input of the model.
        word_numbers: at the token that represents a word, 1 + the word's index in its sentence; 0 elsewhere.
        tag_numbers: at the same tokens, 1 + the index of the word's label; 0 elsewhere. Only if the sentences have
          tags.
      Column int32 [windows, 1]:
        sentence_index: index of the sentence in the data set.
    """
    names = ["input_ids", "segment_ids", "word_numbers"]
    if any(sentence.tags is not None for _, sentence in sentences):
        names.append("tag_numbers")
    rows: dict[str, list] = {name: [] for name in names}
    indices = []
    tokenizer = settings.tokenizer
    room = settings.max_seq_length - NUM_SPECIAL
    no_word = np.zeros(1, np.int32)
    cls = np.array([tokenizer.cls_id], np.int32)
    sep = np.array([tokenizer.sep_id], np.int32)
    for index, sentence in sentences:
        text, starts = joined(sentence.words, settings.separator)
        ids, spans = tokenizer.encode_with_offsets(text)
        parts = visible_parts(text, spans)
        ids_X = np.array(ids, np.int32)
        numbers = word_numbers(starts, np.array(parts, np.int32).reshape(-1, 2))

        # The tags B-PER, O with the indices 1, 0 -> [0 2 1]: by the number of the word, which is 0 for no word.
        tags = sentence.tags or [-1] * len(sentence.words)
        tag_numbers = np.array([-1, *tags], np.int32) + 1

        for start, length, is_max in sequences.windows_over(len(ids), room, settings.doc_stride):
            window = slice(start, start + length)
            # The numbers [1 2 0 3], of which the last word has more context in the next window -> [0 1 2 0 0 0].
            numbers_here = np.where(is_max, numbers[window], 0)
            words_here = np.concatenate([no_word, numbers_here, no_word])
            rows["input_ids"].append(np.concatenate([cls, ids_X[window], sep]))
            rows["segment_ids"].append(np.zeros_like(words_here))
            rows["word_numbers"].append(words_here)
            if "tag_numbers" in rows:
                rows["tag_numbers"].append(tag_numbers[words_here])
            indices.append(index)
    return FeatureTable.from_rows(rows, {"sentence_index": indices})


def joined(words: Sequence[str], separator: str) -> tuple[str, np.ndarray]:
    """The text made of some words, and the position at which each word starts, int64 [words]."""
    lengths = np.array([len(word) + len(separator) for word in words], np.int64)
    return separator.join(words), np.cumsum(lengths) - lengths


def word_numbers(starts: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """For each token, 1 + the index of the word that it represents, or 0; int32 [tokens].

    Words are given by their first characters, int [words], tokens by their ranges of characters, int [tokens, 2]. A
    token without text represents no word.
    """
    numbers = np.zeros(len(spans), np.int32)
    tokens = np.flatnonzero(spans[:, 1] > spans[:, 0])
    words = np.searchsorted(starts, spans[tokens, 0], side="right")
    words, first = np.unique(words, return_index=True)
    numbers[tokens[first]] = words
    return numbers


def word_labels(
    windows: FeatureTable,
    probabilities: np.ndarray,
    sentences: Sequence[Sentence],
    labels: Sequence[str],
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The most probable label of each word, int [words], and its probability, float [words], for each sentence.

    Probabilities are float [windows, L, C], with L at least the longest window's length.
    """
    # Windows and tokens that represent a word: [windows, L] -> [tokens] each.
    longest = int(windows.lengths.max())
    batch = windows.batch(np.arange(len(windows)), longest, ["word_numbers"])
    numbers_WL = batch["word_numbers"]
    window_X, token_X = np.nonzero(numbers_WL)

    # Sentences of 3 and 2 words -> [0 3]: the place of a sentence's first word among all words.
    counts_S = np.array([len(sentence.words) for sentence in sentences])
    begins_S = np.cumsum(counts_S) - counts_S
    sentence_X = windows.columns["sentence_index"][window_X, 0]
    word_X = begins_S[sentence_X] + numbers_WL[window_X, token_X] - 1

    # [words]: -1 and 0 for a word without a token.
    probabilities_XC = probabilities[window_X, token_X]
    best = np.full(counts_S.sum(), -1)
    certainty = np.zeros(counts_S.sum())
    best[word_X] = probabilities_XC.argmax(axis=-1)
    certainty[word_X] = probabilities_XC.max(axis=-1)

    has_token = best >= 0
    best, certainty = _with_continued(best, certainty, np.repeat(begins_S, counts_S), labels)
    words = [word for sentence in sentences for word in sentence.words]
    is_unseen = [not has and is_invisible(word) for has, word in zip(has_token, words, strict=True)]
    ends = set(np.cumsum(counts_S).tolist())
    _leave_out_unseen(best, is_unseen, ends, labels)
    return np.split(best, begins_S[1:]), np.split(certainty, begins_S[1:])


def _outside(labels: Sequence[str]) -> int:
    """The label of words outside of entities."""
    return labels.index(entities.OUTSIDE) if entities.OUTSIDE in labels else 0


def _with_continued(
    best: np.ndarray, certainty: np.ndarray, begins: np.ndarray, labels: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The labels of words and their probabilities; a word without a token continues the tag of the last that has one.

    Args:
      best: int [words]; -1 for a word without a token.
      certainty: float [words].
      begins: for each word the place of its sentence's first word, beyond which no tag is continued.
    """
    # The labels [4 -1 -1 2] -> [0 0 0 3]: the place of the last word that has a token.
    has_token = best >= 0
    places = np.arange(len(best))
    last = np.maximum.accumulate(np.where(has_token, places, -1))
    follows = ~has_token & (last >= begins)

    continued = np.array(entities.continuations(labels))[best[last]]
    of_tokenless = np.where(follows, continued, _outside(labels))
    return np.where(has_token, best, of_tokenless), np.where(follows, certainty[last], certainty)


def _leave_out_unseen(
    best: np.ndarray, is_unseen: Sequence[bool], ends: set[int], labels: Sequence[str]
) -> None:
    """Changes the labels of words that cannot be seen, unless the entity goes on after them.

    Some tokenizers write white space as a word.

    Args:
      best: int [words].
      is_unseen: whether a word has no token and no visible character.
      ends: for each sentence the place after its last word.
    """
    outside = _outside(labels)
    for index in reversed(range(len(best))):
        if not is_unseen[index]:
            continue
        is_last = index + 1 in ends
        if is_last or labels[best[index + 1]] != labels[best[index]]:
            best[index] = outside


def is_word_punctuation(char: str) -> bool:
    """Whether a character at either end of a run of characters is a word of its own, or belongs to one."""
    # Code points above are ideographs or have no glyph.
    return char < "\U00020000" and unicodedata.category(char)[0] in "PS" and char not in "@#"


@functools.cache
def _word_pattern() -> re.Pattern:
    """A word: an ideograph, a run of characters up to white space, or punctuation at either end of such a run.

    Punctuation inside a run belongs to the word, and so do "@" and "#".
    """
    ideographs = "".join(f"{chr(first)}-{chr(last)}" for first, last in wordpiece.CHINESE)
    space = inside_class(str.isspace)
    punctuation = inside_class(is_word_punctuation)
    run = f"[^{space}{punctuation}{ideographs}]+"
    return re.compile(f"[{ideographs}]|{run}(?:[{punctuation}]+{run})*|[{punctuation}]+")


def split_words(text: str) -> list[tuple[int, int]]:
    """The range of each word, end exclusive: 'Ann (in Rome), http://a.b/c' -> Ann ( in Rome ), http://a.b/c.

    A word neither begins nor ends with an invisible character.
    """
    spans = visible_parts(text, [match.span() for match in _word_pattern().finditer(text)])
    return [(start, end) for start, end in spans if start < end]
