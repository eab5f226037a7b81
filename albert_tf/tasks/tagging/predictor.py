"""Entities of texts from a finished model."""

from collections.abc import Mapping, Sequence
from typing import Any

from scipy.special import softmax

from albert_tf.tasks.predictor import Item, Predictor, defaults_of
from albert_tf.tasks.tagging import windows
from albert_tf.tasks.tagging.conll import Sentence
from albert_tf.tasks.tagging.entities import entities_of
from albert_tf.tasks.tagging.settings import TaggingConfig

_OF_WINDOWS = ("max_seq_length", "doc_stride", "word_separator")


class TaggingPredictor(Predictor):
    """Entities with their characters."""

    expects = 'a text, or {"tokens": [words]}'
    text_keys = ("text", "tokens")
    default_settings = defaults_of(TaggingConfig, *_OF_WINDOWS)

    def check(self, item: Item) -> tuple[str, list[tuple[int, int]]]:
        """A text, and the characters of each of its words."""
        tokens = item.get("tokens") if isinstance(item, Mapping) else None
        text = item.get("text") if isinstance(item, Mapping) else item
        if isinstance(text, str) and tokens is None:
            return text, windows.split_words(text)
        is_words = isinstance(tokens, list) and tokens and all(isinstance(t, str) for t in tokens)
        if not is_words or not all(map(str.strip, tokens)) or text is not None:
            self.refuse(item)
        text, starts = windows.joined(tokens, self._settings().separator)
        ends = starts + list(map(len, tokens))
        return text, list(zip(starts.tolist(), ends.tolist(), strict=True))

    def predict(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """See `Predictor`: `entities` with `label`, `text`, `start`, `end` and `probability`.

        `start` and `end` count characters of the text, or of the tokens joined as in training. The `probability` is the
        mean of the words'. Given tokens, the answer also has their `tags`.
        """
        texts = [self.check(item) for item in items]
        sentences = [Sentence(tuple(text[slice(*span)] for span in spans)) for text, spans in texts]
        table = windows.make_windows(self._settings(), list(enumerate(sentences)))
        probabilities = softmax(self.outputs(table)["logits"], axis=-1)
        labels = self.model.config.labels
        answers = []
        for item, (text, spans), tags, certainties in zip(
            items, texts, *windows.word_labels(table, probabilities, sentences, labels), strict=True
        ):
            tags = [labels[tag] for tag in tags]
            found = []
            for label, first, last in entities_of(tags):
                start, end = spans[first][0], spans[last][1]
                probability = float(certainties[first : last + 1].mean())
                entity = {"label": label, "text": text[start:end], "start": start, "end": end}
                found.append({**entity, "probability": probability})
            has_tokens = isinstance(item, Mapping) and "tokens" in item
            answers.append({"entities": found, **({"tags": tags} if has_tokens else {})})
        return answers

    def _settings(self) -> windows.WindowSettings:
        return windows.WindowSettings(self.tokenizer, **self.settings(*_OF_WINDOWS))

    def shown(self, answer):
        rows = answer["entities"]
        lines = [f"  {row['label']:<8}  {row['text']}  ({row['probability']:.3f})" for row in rows]
        return "\n".join(lines) or "(no entities)"
