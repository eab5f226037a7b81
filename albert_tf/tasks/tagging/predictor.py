"""Finds the entities of texts with a finished model."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from albert_tf.tasks.predictor import Item, Predictor, defaults_of
from albert_tf.tasks.tagging import tag_forms, windows
from albert_tf.tasks.tagging.conll import Sentence
from albert_tf.tasks.tagging.entities import entities_of, of_words
from albert_tf.tasks.tagging.settings import TAG_FORM, WORDS, TaggingConfig
from albert_tf.text.visible import visible_parts

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
        tokens: Any = item.get("tokens") if isinstance(item, Mapping) else None
        text = item.get("text") if isinstance(item, Mapping) else item
        tokens = [] if tokens == "" and text is None else tokens  # a missing list
        if isinstance(text, str) and tokens is None:
            self.count(text)
            return Words(text, windows.split_words(text), False)
        is_words = isinstance(tokens, list) and all(isinstance(token, str) for token in tokens)
        if not is_words or not all(tokens) or text is not None:
            self.refuse(item)
        text, starts = windows.joined(tokens, self._settings().separator)
        self.count(text)
        ends = starts + np.array(list(map(len, tokens)), np.int64)
        return Words(text, list(zip(starts.tolist(), ends.tolist(), strict=True)), True)

    def num_windowed_characters(self, example):
        return len(example.text)

    def answers(self, examples):
        """See `Predictor`: `entities` with `label`, `text`, `start`, `end` and `probability`.

        `start` and `end` are positions in the text, or in the tokens joined as in training, without invisible
        characters at the ends. The `probability` is the mean over the entity's words. If tokens were given, the answer
        also has their `tags`.
        """
        sentences = [
            Sentence(tuple(text[slice(*span)] for span in spans)) for text, spans, _ in examples
        ]
        table = windows.make_windows(self._settings(), list(enumerate(sentences)))
        probabilities = softmax(self.outputs(table)["logits"], axis=-1)
        labels = self.model.config.labels
        answers = []
        is_of_words = self.task_settings.get("tag_scheme") == WORDS
        form = tag_forms.named(self.task_settings.get(TAG_FORM, tag_forms.USUAL.name))
        labelled = windows.word_labels(table, probabilities, sentences, labels)
        for (text, spans, are_given), tags, certainties in zip(examples, *labelled, strict=True):
            tags = [labels[tag] for tag in tags]
            found = []
            for label, first, last in entities_of(of_words(tags) if is_of_words else tags):
                start, end = _visible_range(text, spans[first][0], spans[last][1])
                probability = float(certainties[first : last + 1].mean())
                entity = {"label": label, "text": text[start:end], "start": start, "end": end}
                found.append({**entity, "probability": probability})
            written = {"tags": list(map(form.written, tags))} if are_given else {}
            answers.append({"entities": found, **written})
        return answers

    def _settings(self) -> windows.WindowSettings:
        return windows.WindowSettings(self.tokenizer, **self.settings(*_OF_WINDOWS))


def _visible_range(text: str, start: int, end: int) -> tuple[int, int]:
    """A range of a text without the invisible characters at its ends, unless it has no others."""
    ((first, last),) = visible_parts(text, [(start, end)])
    return (first, last) if first < last else (start, end)
