"""Finds the entities of texts with a finished model."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.core.probabilities import softmax
from albert_tf.tasks.predictor import Item, Predictor, defaults_of
from albert_tf.tasks.tagging import tag_forms, windows
from albert_tf.tasks.tagging.conll import Sentence
from albert_tf.tasks.tagging.entities import entities_of, of_words
from albert_tf.tasks.tagging.settings import TAG_FORM, WORDS, TaggingConfig
from albert_tf.text.visible import Span, visible_parts

_OF_WINDOWS = ("max_seq_length", "doc_stride", "word_separator")


class Words(NamedTuple):
    """A text and its words."""

    text: str
    spans: list[tuple[int, int]]  # range of characters of each word, end exclusive
    are_given: bool  # false if the text was split here


class TaggingPredictor(Predictor):
    """Finds entities and their positions in the text."""

    expects = 'a text, or {"tokens": [words]}'
    text_keys = ("text", "tokens")
    default_settings = defaults_of(TaggingConfig, *_OF_WINDOWS, "tag_scheme")

    def check(self, item: Item) -> Words:
        text: Any = item
        tokens: Any = None
        if isinstance(item, Mapping):
            text = item.get("text")
            tokens = item.get("tokens")
        if tokens == "" and text is None:
            tokens = []  # a missing list

        if isinstance(text, str) and tokens is None:
            words = Words(text, windows.split_words(text), are_given=False)
        elif text is None and _are_words(tokens):
            words = self._joined(tokens)
        else:
            self.refuse(item)

        self.count(words.text)
        return words

    def num_windowed_characters(self, example):
        return len(example.text)

    def answers(self, examples):
        """See `Predictor`: `entities` with `label`, `text`, `start`, `end` and `probability`.

        `start` and `end` are positions in the text, or in the tokens joined as in training, without invisible
        characters at the ends. The `probability` is the mean over the entity's words. If tokens were given, the answer
        also has their `tags`.
        """
        sentences = []
        for example in examples:
            words = tuple(example.text[start:end] for start, end in example.spans)
            sentences.append(Sentence(words))
        table = windows.make_windows(self._settings(), list(enumerate(sentences)))

        # [2, 128, 9]: in 2 windows of at most 128 tokens, the probabilities of 9 labels.
        probabilities = softmax(self.outputs(table)["logits"])

        # For each sentence the most probable labels, int [5], of its 5 words, and their probabilities, float [5].
        labels = self.model.config.labels
        indices_of_all, probabilities_of_all = windows.word_labels(
            table, probabilities, sentences, labels
        )

        form = tag_forms.named(self.task_settings.get(TAG_FORM, tag_forms.USUAL.name))
        answers = []
        for example, indices, word_probabilities in zip(
            examples, indices_of_all, probabilities_of_all, strict=True
        ):
            tags = [labels[index] for index in indices]
            answer: dict[str, Any] = {"entities": self._entities(example, tags, word_probabilities)}
            if example.are_given:
                answer["tags"] = [form.written(tag) for tag in tags]
            answers.append(answer)
        return answers

    def _entities(
        self, words: Words, tags: Sequence[str], word_probabilities: np.ndarray
    ) -> list[dict[str, Any]]:
        """The entities of a text whose words have the tags, with these probabilities, float [words]."""
        if self.task_settings.get("tag_scheme") == WORDS:
            tags = of_words(tags)

        words_of_entities = entities_of(tags)
        ranges = []
        for _, first, last in words_of_entities:
            start, _ = words.spans[first]
            _, end = words.spans[last]
            ranges.append((start, end))

        entities = []
        for (label, first, last), (start, end) in zip(
            words_of_entities, _visible_ranges(words.text, ranges), strict=True
        ):
            entity = {
                "label": label,
                "text": words.text[start:end],
                "start": start,
                "end": end,
                "probability": float(word_probabilities[first : last + 1].mean()),
            }
            entities.append(entity)
        return entities

    def _joined(self, tokens: Sequence[str]) -> Words:
        """Words that were given, and the text that they make when they are joined as in training."""
        text, starts = windows.joined(tokens, self._settings().separator)
        spans = [
            (start, start + len(token))
            for start, token in zip(starts.tolist(), tokens, strict=True)
        ]
        return Words(text, spans, are_given=True)

    def _settings(self) -> windows.WindowSettings:
        return windows.WindowSettings(self.tokenizer, **self.settings(*_OF_WINDOWS))


def _are_words(tokens: Any) -> bool:
    """Whether a value is a list of words, none of which is empty."""
    return isinstance(tokens, list) and all(
        isinstance(token, str) and token != "" for token in tokens
    )


def _visible_ranges(text: str, ranges: Sequence[Span]) -> list[Span]:
    """Ranges of a text without the invisible characters at their ends; one without others stays.

    They are found together: a look at the whole text for each of its entities would take quadratic time.
    """
    parts = visible_parts(text, ranges)
    return [part if part[0] < part[1] else whole for part, whole in zip(parts, ranges, strict=True)]
