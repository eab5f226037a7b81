"""Tagging: predicts a label for every word; entities are scored."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data.reading import EXAMPLE_WEIGHTS
from albert_tf.model.heads import AlbertForTokenClassification
from albert_tf.tasks.classification import multi_label
from albert_tf.tasks.finetuning import FineTuningTask
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.tasks.tagging import entities, tag_forms, windows
from albert_tf.tasks.tagging.conll import Sentence
from albert_tf.tasks.tagging.settings import PREFIXED, TAG_FORM, WORDS, TaggingConfig
from albert_tf.tasks.tagging.source import TaggingSource
from albert_tf.training.losses import Ratio
from albert_tf.training.task import Features, Files, Outputs, Predictions

_IN_CONLL, _IN_LINES = "predictions/predictions.conll", "predictions/predictions.jsonl"


class TaggingTask(FineTuningTask):
    """Tags words; for the arguments see `FineTuningTask`."""

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
        if example := unfit(sentence.words for sentence in self.sentences.get("predict", ())):
            path, reason = run.predictions_file, f"the format of CoNLL cannot hold {example}"
            if path and not _is_jsonl(path):
                run.refuse("predictions_file", f"={path}: {reason}; give a name ending with .jsonl")
            if not path:
                print(f"--predict_file: {reason}; the answers will be JSON lines", flush=True)
            self.usual_predictions_file = _IN_LINES
        self.class_weights = self._balanced_weights() if config.class_weights else None
        # That of the training data, which the finished model remembers.
        name = self._weights.task_settings.get(TAG_FORM) if self._weights else None
        self.form = self.source.form or tag_forms.named(name or tag_forms.USUAL.name)
        self.older_predictions = () if run.predictions_file else (_IN_CONLL, _IN_LINES)

    def build_model(self, **settings):
        """See `FineTuningTask`; a new head begins with the frequencies of the tags.

        If it began with 0, the first steps would only make O more probable at every word, and at D = 128 this made the
        vectors of all words equal: the model never learned.
        """
        model = super().build_model(**settings)
        if "train" in self.sentences and "output_bias" in self._initialized:
            tags = [tag for sentence in self.sentences["train"] for tag in sentence.tags or ()]
            counts = 1.0 + np.bincount(tags, minlength=len(self.labels))
            model.head.output_bias.assign(np.log(counts / counts.sum()))
        return model

    def _balanced_weights(self) -> np.ndarray | None:
        """The weights of the labels in training, float32 [C]; also says what they are."""
        if "train" not in self.sentences:
            return None
        tags = [tag for sentence in self.sentences["train"] for tag in sentence.tags or ()]
        truths = np.array(tags, np.int64)[:, None]
        weights = multi_label.balanced_weights(truths, len(self.labels), is_multi_label=False)
        print(multi_label.weights_in_words(self.labels, weights), flush=True)
        return weights

    def _loss_weights(self, features: Features) -> tf.Tensor:
        """The weight of each token in the loss, float32 [B, L]; in evaluations, every word has the same."""
        weights_BL = _word_weights(features)
        if self.class_weights is None or EXAMPLE_WEIGHTS in features:
            return weights_BL
        return weights_BL * tf.gather(self.class_weights, _labels(features))

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of words, or the sum of the weights of their labels."""
        return {"tag_loss": tf.reduce_sum(self._loss_weights(features))}

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Cross entropy of the words' labels, at each word's first token."""
        wanted = self._teachers_outputs(features).get("logits")
        weights = self._loss_weights(features)
        loss = self._label_loss(outputs["logits"], _labels(features), weights, wanted)
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

    def task_settings(self):
        """See `FineTuningTask`; includes the form of tags, if it is not that of CoNLL's files."""
        form = {} if self.form == tag_forms.USUAL else {TAG_FORM: self.form.name}
        return {**super().task_settings(), **form}

    def _true_tags(self) -> list[list[str]]:
        return [[self.labels[index] for index in row.tags or ()] for row in self.sentences["eval"]]

    def evaluate(self, predictions: Predictions) -> Mapping[str, float]:
        """Precision, recall and F1 of entities, as in seqeval and conlleval; `f1_` with a type is that type's F1."""
        groups = [self._true_tags(), self._tags(predictions, "eval")]
        if self.config.tag_scheme == WORDS:
            groups = [list(map(entities.of_words, tags)) for tags in groups]
        rows = entities.scores(*groups)
        names = {"precision": "precision", "recall": "recall", "f1": "f1-score"}
        total, macro = rows.get("micro avg", {}), rows.get("macro avg", {})
        results = {name: total.get(key, 0.0) for name, key in names.items()}
        types = [name for name in rows if not name.endswith(" avg")]
        of_types = {f"f1_{name}": rows[name]["f1-score"] for name in types}
        return {**results, "macro_f1": macro.get("f1-score", 0.0), **of_types}

    def evaluation_files(self, predictions: Predictions) -> Files:
        """The words with true and predicted tags, and the raw predictions."""
        words = [sentence.words for sentence in self.sentences["eval"]]
        predicted = self._tags(predictions, "eval")
        return {
            **tagged_file(
                "eval_predictions",
                words,
                tag=self._written(self._true_tags()),
                predicted=self._written(predicted),
            ),
            **self._raw_file(predictions, "eval"),
        }

    def prediction_files(self, predictions: Predictions) -> Files:
        """The words with their tags, and the raw predictions."""
        words = [sentence.words for sentence in self.sentences["predict"]]
        tags = self._written(self._tags(predictions, "predict"))
        name = self.predictions_file()
        (text,) = tagged_file("", words, as_lines=_is_jsonl(name), predicted=tags).values()
        return {name: text, **self._raw_file(predictions, "predict")}


def _labels(features: Features) -> tf.Tensor:
    """int32 [B, L]: the labels of the words, at the tokens that represent them; 0 elsewhere."""
    return tf.maximum(features["tag_numbers"] - 1, 0)


def _word_weights(features: Features) -> tf.Tensor:
    """float32 [B, L]: 1 at tokens that represent a word of a real example."""
    is_word = tf.cast(features["tag_numbers"] > 0, tf.float32)
    weights_B = features.get(EXAMPLE_WEIGHTS)
    return is_word if weights_B is None else is_word * weights_B[:, None]


def _is_jsonl(path: str) -> bool:
    return path.lower().endswith(".jsonl")


def unfit(words: Iterable[entities.Tags]) -> str:
    """What would not be read back from a file in the format of CoNLL as it is, for messages; "" if all would be."""
    blank = re.compile(r"[ \t\r\v\f]|.*[\t\r\n]|.*[ \v\f]$|-DOCSTART-", re.DOTALL)
    for sentence in words:
        if not sentence:
            return "a row without words"
        if found := next(filter(blank.match, sentence), ""):
            return f"the word {found[:80]!r}"
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
    text = "".join(
        "".join("\t".join(row) + "\n" for row in zip(*sentence, strict=True)) + "\n"
        for sentence in zip(words, *columns.values(), strict=True)
    )
    return {f"predictions/{name}.conll": text}
