"""Tagging: predicts a label for every word; entities are scored."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data.reading import EXAMPLE_WEIGHTS
from albert_tf.model.heads import AlbertForTokenClassification, ModelWithHead
from albert_tf.tasks.classification import multi_label
from albert_tf.tasks.finetuning import FineTuningTask, raw_file
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.tasks.tagging import entities, tag_forms, windows
from albert_tf.tasks.tagging.conll import Sentence
from albert_tf.tasks.tagging.settings import PREFIXED, TAG_FORM, WORDS, TaggingConfig
from albert_tf.tasks.tagging.source import TaggingSource
from albert_tf.tasks.teacher import outputs_of_teacher, taught_cross_entropy
from albert_tf.training.losses import Ratio
from albert_tf.training.task import Features, Files, Outputs, Predictions

_IN_CONLL = "predictions/predictions.conll"
_IN_LINES = "predictions/predictions.jsonl"


class TaggingTask(FineTuningTask):
    """Tags words; for the arguments see `FineTuningTask`.

    Attributes:
      sentences: the sentences of each split.
      class_weights: the weights of the tags in training, float32 [C]; None if all count alike.
      form: how the tags of the training data are written, which the finished model remembers.
    """

    model_class = AlbertForTokenClassification
    source_class = TaggingSource
    source: TaggingSource
    packs = True
    config: TaggingConfig
    best_metric = "f1"
    usual_predictions_file = _IN_CONLL
    usual_epochs = 10.0  # after 3, small models on small files have hardly begun
    shown_metrics = ("loss", "precision", "recall", "f1")

    def __init__(self, config: TaggingConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        self.sentences: dict[str, list[Sentence]] = {
            split: [sentence for _, sentence in items] for split, items in self.items.items()
        }
        self._choose_predictions_file()
        self.class_weights: np.ndarray | None = None
        if config.class_weights and "train" in self.sentences:
            tags_X1 = self._training_tags()[:, None]
            self.class_weights = multi_label.balanced_weights(
                tags_X1, len(self.labels), is_multi_label=False
            )
            print(multi_label.weights_in_words(self.labels, self.class_weights), flush=True)
        self.form = self.source.form or self._form_of_model()

    def _choose_predictions_file(self) -> None:
        """Answers are JSON lines, if the words are such that the format of CoNLL cannot hold them."""
        path = self.run.predictions_file
        self.older_predictions = () if path else (_IN_CONLL, _IN_LINES)
        example = unfit(sentence.words for sentence in self.sentences.get("predict", ()))
        if not example:
            return
        reason = f"the format of CoNLL cannot hold {example}"
        if not path:
            print(f"--predict_file: {reason}; the answers will be JSON lines", flush=True)
        elif not _is_jsonl(path):
            self.run.refuse(
                "predictions_file", f"={path}: {reason}; give a name ending with .jsonl"
            )
        self.usual_predictions_file = _IN_LINES

    def _form_of_model(self) -> tag_forms.TagForm:
        """The form of the tags that the initial model learned, or the usual one."""
        weights = self.start.weights
        name = weights.task_settings.get(TAG_FORM) if weights else None
        return tag_forms.named(name or tag_forms.USUAL.name)

    def _training_tags(self) -> np.ndarray:
        """The labels of all words of the training data, int64 [words]."""
        tags = [tag for sentence in self.sentences["train"] for tag in sentence.tags or ()]
        return np.array(tags, np.int64)

    def build_model(self, **options: Any) -> ModelWithHead:
        """See `FineTuningTask`; a new head begins with the frequencies of the tags.

        If it began with 0, the first steps would only make O more probable at every word, and at D = 128 this made the
        vectors of all words equal: the model never learned.
        """
        model = super().build_model(**options)
        if "train" in self.sentences and "output_bias" in self.initialized:
            counts_C = 1.0 + np.bincount(self._training_tags(), minlength=len(self.labels))
            model.head.output_bias.assign(np.log(counts_C / counts_C.sum()))
        return model

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of words, or the sum of the weights of their labels."""
        return {"tag_loss": tf.reduce_sum(_word_weights(features, self.class_weights))}

    def losses(self, outputs: Outputs, features: Features, training: bool) -> Mapping[str, Ratio]:
        """Cross entropy of the words' labels, at each word's first token; in evaluations, all words count alike."""
        class_weights = self.class_weights if training else None
        loss = taught_cross_entropy(
            outputs["logits"],
            _labels(features),
            _word_weights(features, class_weights),
            outputs_of_teacher(features).get("logits"),
            self.config,
        )
        return {"tag_loss": loss}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Probabilities [B, L, C]; NaN in the padding."""
        is_token = features["input_mask"][:, :, None] == 1
        return {"probabilities": tf.where(is_token, tf.nn.softmax(outputs["logits"]), np.nan)}

    def _tags(self, predictions: Predictions, split: str) -> list[list[str]]:
        """The predicted tags of each sentence."""
        rows, _ = windows.word_labels(
            self.tables[split], predictions["probabilities"], self.sentences[split], self.labels
        )
        return [[self.labels[index] for index in row] for row in rows]

    def _written(self, tags: Sequence[Sequence[str]]) -> list[list[str]]:
        """The tags of sentences in the form of the training data."""
        if self.config.tag_scheme != PREFIXED:
            return list(map(list, tags))
        return [list(map(self.form.written, row)) for row in tags]

    def task_settings(self) -> dict[str, Any]:
        """See `FineTuningTask`; includes the form of tags, if it is not that of CoNLL's files."""
        settings = super().task_settings()
        if self.form != tag_forms.USUAL:
            settings[TAG_FORM] = self.form.name
        return settings

    def _true_tags(self) -> list[list[str]]:
        return [[self.labels[index] for index in row.tags or ()] for row in self.sentences["eval"]]

    def evaluate(self, predictions: Predictions) -> Mapping[str, float]:
        """Precision, recall and F1 of entities, as in seqeval and conlleval; `f1_` with a type is that type's F1."""
        true_tags = self._true_tags()
        predicted_tags = self._tags(predictions, "eval")
        if self.config.tag_scheme == WORDS:
            true_tags = [list(entities.of_words(tags)) for tags in true_tags]
            predicted_tags = [list(entities.of_words(tags)) for tags in predicted_tags]
        rows = entities.scores(true_tags, predicted_tags)

        total = rows.get("micro avg", {})
        results = {
            "precision": total.get("precision", 0.0),
            "recall": total.get("recall", 0.0),
            "f1": total.get("f1-score", 0.0),
            "macro_f1": rows.get("macro avg", {}).get("f1-score", 0.0),
        }
        for name, row in rows.items():
            if not name.endswith(" avg"):
                results[f"precision_{name}"] = row["precision"]
                results[f"recall_{name}"] = row["recall"]
                results[f"f1_{name}"] = row["f1-score"]
        return results

    def evaluation_files(self, predictions: Predictions) -> Files:
        """The words with true and predicted tags, and the raw predictions."""
        words = [sentence.words for sentence in self.sentences["eval"]]
        file = tagged_file(
            "eval_predictions",
            words,
            tag=self._written(self._true_tags()),
            predicted=self._written(self._tags(predictions, "eval")),
        )
        return {**file, **raw_file(predictions, "eval")}

    def prediction_files(self, predictions: Predictions) -> Files:
        """The words with their tags, and the raw predictions."""
        words = [sentence.words for sentence in self.sentences["predict"]]
        tags = self._written(self._tags(predictions, "predict"))
        name = self.predictions_file()
        (text,) = tagged_file("", words, as_lines=_is_jsonl(name), predicted=tags).values()
        return {name: text, **raw_file(predictions, "predict")}


def _labels(features: Features) -> tf.Tensor:
    """int32 [B, L]: the labels of the words, at the tokens that represent them; 0 elsewhere."""
    return tf.maximum(features["tag_numbers"] - 1, 0)


def _word_weights(features: Features, class_weights: np.ndarray | None) -> tf.Tensor:
    """The weight of each token in the loss, float32 [B, L]: 0 unless it represents a word of a real example."""
    weights_BL = tf.cast(features["tag_numbers"] > 0, tf.float32)
    weights_B = features.get(EXAMPLE_WEIGHTS)
    if weights_B is not None:  # packed rows, which are for training, have no such weights
        weights_BL *= weights_B[:, None]
    if class_weights is not None:
        weights_BL *= tf.gather(class_weights, _labels(features))
    return weights_BL


def _is_jsonl(path: str) -> bool:
    return path.lower().endswith(".jsonl")


def unfit(words: Iterable[entities.Tags]) -> str:
    """What would not be read back from a file in the format of CoNLL as it is, for messages; "" if all would be."""
    blank = re.compile(r"[ \t\r\v\f]|.*[\t\r\n]|.*[ \v\f]$|-DOCSTART-", re.DOTALL)
    for sentence in words:
        if not sentence:
            return "a row without words"
        for word in sentence:
            if blank.match(word):
                return f"the word {word[:80]!r}"
    return ""


def tagged_file(
    name: str,
    words: Sequence[entities.Tags],
    *,
    as_lines: bool = False,
    **columns: Sequence[entities.Tags],
) -> Files:
    """A file in the format of CoNLL with tabs; or JSON lines, if they are asked for or something is `unfit` there."""
    if as_lines or unfit(words):
        rows = [
            dict(zip(["tokens", *columns], row, strict=True))
            for row in zip(words, *columns.values(), strict=True)
        ]
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        return {f"predictions/{name}.jsonl": "".join(lines)}
    lines = []
    for columns_of_sentence in zip(words, *columns.values(), strict=True):
        lines += ["\t".join(row) + "\n" for row in zip(*columns_of_sentence, strict=True)]
        lines.append("\n")
    return {f"predictions/{name}.conll": "".join(lines)}
