"""Tagging: predicts a label for every word; entities are scored."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data.reading import example_weights
from albert_tf.model.heads import AlbertForTokenClassification
from albert_tf.tasks import metrics
from albert_tf.tasks.finetuning import FineTuningTask, averaged
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.tasks.tagging import entities, windows
from albert_tf.tasks.tagging.conll import Sentence
from albert_tf.tasks.tagging.settings import WORDS, TaggingConfig
from albert_tf.tasks.tagging.source import TaggingSource
from albert_tf.training.losses import Ratio, cross_entropy
from albert_tf.training.task import Features, Files, Outputs, Predictions


class TaggingTask(FineTuningTask):
    """Tags words; for the arguments see `FineTuningTask`."""

    model_class = AlbertForTokenClassification
    source_class = TaggingSource
    config: TaggingConfig
    best_metric = "f1"
    usual_predictions_file = "predictions/predictions.conll"
    usual_epochs = (
        10.0  # after 3, small models on small files have hardly begun (docs/finetuning.md)
    )
    shown_metrics = ("loss", "precision", "recall", "f1")

    def __init__(self, config: TaggingConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        self.sentences: dict[str, list[Sentence]] = {
            split: [sentence for _, sentence in items] for split, items in self.items.items()
        }

    def build_model(self, **settings):
        """See `FineTuningTask`; a new head begins with the frequencies of the tags.

        If it began with 0, the first steps would only make O more probable at every word, and at D = 128 this made the
        vectors of all words equal: the model never learned (docs/results/small_models.md).
        """
        model = super().build_model(**settings)
        if "train" in self.sentences and "output_bias" in self._initialized:
            tags = [tag for sentence in self.sentences["train"] for tag in sentence.tags or ()]
            counts = 1.0 + np.bincount(tags, minlength=len(self.labels))
            model.head.output_bias.assign(np.log(counts / counts.sum()))
        return model

    # --- Training ---

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of words."""
        return {"tag_loss": tf.reduce_sum(_word_weights(features))}

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Cross entropy of the words' labels, at each word's first token."""
        labels = tf.maximum(features["tag_numbers"] - 1, 0)
        return {"tag_loss": cross_entropy(outputs["logits"], labels, _word_weights(features))}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Probabilities [B, L, C]; NaN in the padding."""
        is_token = features["input_mask"][:, :, None] == 1
        return {"probabilities": tf.where(is_token, tf.nn.softmax(outputs["logits"]), np.nan)}

    # --- Results ---

    def _tags(
        self, members: Sequence[Predictions], split: str
    ) -> tuple[list[list[str]], list[np.ndarray]]:
        """The predicted tags of each sentence, and their probabilities."""
        labels, certainties = windows.word_labels(
            self.tables[split],
            averaged(members, "probabilities"),
            self.sentences[split],
            self.labels,
        )
        return [[self.labels[index] for index in row] for row in labels], certainties

    def _true_tags(self) -> list[list[str]]:
        return [[self.labels[index] for index in row.tags or ()] for row in self.sentences["eval"]]

    def _as_entities(self, *groups: list[list[str]]) -> list[list[list[str]]]:
        is_of_words = self.config.tag_scheme == WORDS
        return [list(map(entities.of_words, tags)) if is_of_words else tags for tags in groups]

    def evaluate(self, members: Sequence[Predictions]) -> Mapping[str, float]:
        """Precision, recall and F1 of entities, as in seqeval and conlleval; `f1_` with a type is that type's F1."""
        predicted, _ = self._tags(members, "eval")
        rows = entities.scores(*self._as_entities(self._true_tags(), predicted))
        names = {"precision": "precision", "recall": "recall", "f1": "f1-score"}
        total, macro = rows.get("micro avg", {}), rows.get("macro avg", {})
        results = {name: total.get(key, 0.0) for name, key in names.items()}
        types = [name for name in rows if not name.endswith(" avg")]
        of_types = {f"f1_{name}": rows[name]["f1-score"] for name in types}
        return {**results, "macro_f1": macro.get("f1-score", 0.0), **of_types}

    # --- Files ---

    def evaluation_files(self, members: Sequence[Predictions]) -> Files:
        """A table by type with the worst errors, the words with true and predicted tags, and the raw predictions."""
        sentences, true = self.sentences["eval"], self._true_tags()
        predicted, certainties = self._tags(members, "eval")
        groups = self._as_entities(true, predicted)
        words = [sentence.words for sentence in sentences]
        return {
            "predictions/eval_errors.txt": _error_report(
                sentences, groups[0], groups[1], certainties
            ),
            **tagged_file("eval_predictions", words, tag=true, predicted=predicted),
            **self._raw_file(members, "eval"),
        }

    def prediction_files(self, members: Sequence[Predictions]) -> Files:
        """The words with their tags, and the raw predictions."""
        words = [sentence.words for sentence in self.sentences["predict"]]
        tags, _ = self._tags(members, "predict")
        ((usual, text),) = tagged_file("predictions", words, predicted=tags).items()
        name = self.predictions_file() if usual.endswith(".conll") else usual
        return {name: text, **self._raw_file(members, "predict")}


def _word_weights(features: Features) -> tf.Tensor:
    """float32 [B, L]: 1 at tokens that represent a word of a real example."""
    is_word = tf.cast(features["tag_numbers"] > 0, tf.float32)
    return is_word * example_weights(features)[:, None]


def tagged_file(
    name: str, words: Sequence[entities.Tags], **columns: Sequence[entities.Tags]
) -> Files:
    """A file in the format of CoNLL; or JSON lines, if a word is not read back from there as it is.

    In the first, columns are separated by tabs, and an empty line is after each sentence.
    """
    blank = re.compile(r"[ \t\r\v\f]|.*[\t\r\n]|.*[ \v\f]$|-DOCSTART-", re.DOTALL)
    if any(blank.match(word) for sentence in words for word in sentence):
        rows = [
            dict(zip(["tokens", *columns], row, strict=True))
            for row in zip(words, *columns.values(), strict=True)
        ]
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        return {f"predictions/{name}.jsonl": "".join(lines)}
    text = "".join(
        "".join("\t".join(row) + "\n" for row in zip(*sentence, strict=True)) + "\n"
        for sentence in zip(words, *columns.values(), strict=True)
    )
    return {f"predictions/{name}.conll": text}


def _error_report(
    sentences: Sequence[Sentence],
    true: Sequence[entities.Tags],
    predicted: Sequence[entities.Tags],
    certainties: Sequence[np.ndarray],
) -> str:
    """The table by type, and the sentences with the most certain wrong entities."""
    found: list[list[set[Any]]] = [
        [set(map(tuple, entities.entities_of(tags))) for tags in rows] for rows in (true, predicted)
    ]
    sureness, is_wrong = np.zeros(len(sentences)), np.zeros(len(sentences), bool)
    for index, (expected, given) in enumerate(zip(*found, strict=True)):
        words = [w for _, first, last in expected ^ given for w in range(first, last + 1)]
        if words:
            sureness[index], is_wrong[index] = certainties[index][words].max(), True

    def describe(index: int) -> str:
        sentence, lines = sentences[index], []
        lines.append(f"{sentence.place()} ({sureness[index]:.3f}): {' '.join(sentence.words)}")
        expected, given = found[0][index], found[1][index]
        for title, group in (("predicted", given - expected), ("true", expected - given)):
            shown = [
                f"{' '.join(sentence.words[first : last + 1])} ({type})"
                for type, first, last in sorted(group, key=lambda entity: entity[1])
            ]
            lines.append(f"  {title:9}  {'; '.join(shown) or '(none)'}")
        return "\n".join(lines)

    table = entities.score_table(true, predicted)
    return metrics.error_report(table, sureness, is_wrong, describe)
