"""The base of fine-tuning tasks: model and new head, vocabulary, features, and the folder of the finished model."""

import collections
import dataclasses
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings
from albert_tf.data.datasets import TableData
from albert_tf.data.feature_table import lengths_to_pad_to
from albert_tf.data.reading import example_weights
from albert_tf.formats import depth, pretrained
from albert_tf.formats.tokenizer_files import vocabulary_files
from albert_tf.formats.weights import POOLER
from albert_tf.model import device
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import ModelWithHead
from albert_tf.tasks import metrics
from albert_tf.tasks.definition import DEFINED_IN, file_of
from albert_tf.tasks.predictor import best_label
from albert_tf.tasks.sequences import check_segments
from albert_tf.tasks.settings import (
    FineTuningConfig,
    FineTuningRunConfig,
    check_fixed,
    check_length,
    default_learning_rate,
    model_of,
)
from albert_tf.tasks.source import Source
from albert_tf.text.settings import TextSettings
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.losses import Ratio, cross_entropy, divergence
from albert_tf.training.settings import OptimizerConfig
from albert_tf.training.task import Features, Files, Outputs, Predictions, Task
from albert_tf.user_files.answer_tables import answer_table

_TEACHER = "teacher/"  # begins the names of a teacher's outputs among the features of the losses
_OWN_KEYS = ("id2label", "label2id", "finetuning_task", "problem_type", "sentence_embedding")


class FineTuningTask(Task):
    """A task that starts from a pretrained encoder; by default, it predicts one of several labels.

    Its `items` and `tables` are the source's items and their features, by split.
    """

    keeps = "best"
    usual_epochs = 3.0
    usual_predictions_file = "predictions/predictions.tsv"
    model_class: type[ModelWithHead]
    source_class: type[Source]
    packs = False  # whether the model and the losses take packed rows
    has_output_per_label = True  # whether a head fits only the labels that it was made for
    _weights: Any  # `Weights` of the model to start from; None without one

    def __init__(self, config: FineTuningConfig, run: FineTuningRunConfig):
        self.config = config
        self.run = run
        self.source = self.source_class(config)
        self.task_name = self.source.task_name
        origin = self._origin()
        num_layers = config.num_hidden_layers
        self._weights = pretrained.read_weights(origin, num_layers) if origin else None
        self.tokenizer = self._load_vocabulary(origin)
        self._read()
        self.model_config = self._resolve_config()
        self.tokenizer.max_length = self.model_config.max_position_embeddings
        self._teacher_weights = self._read_teacher() if run.do_train else None
        self._teacher: Any = None
        self._make_data()

    def _read(self) -> None:
        """Reads the files of the splits that the run needs."""
        if not self.source.labels and self._has_head():
            labels = tuple(self._weights.config.labels)
            self.source.initial_labels = labels
            self.source.labels = () if self.run.do_train else labels
        splits = self.config.splits_to_read(self.run)
        items = {split: self.source.read(split) for split in splits}
        self.items = {split: values for split, values in items.items() if values is not None}
        self.labels = self.source.labels

    # --- Model ---

    def _origin(self) -> str:
        """Path of the weights: the initial checkpoint; if nothing is trained, the run itself."""
        return model_of({**self.config.to_dict(), **self.run.to_dict()})

    def _has_head(self) -> bool:
        """Whether the weights have a head of this task; a classifier of transformers names its labels alone."""
        weights = self._weights
        if not weights or weights.model_class != self.model_class.__name__:
            return False
        foreign = weights.config.foreign
        task_name = foreign.get("finetuning_task", self.task_name if "id2label" in foreign else "")
        is_same_kind = weights.config.is_multi_label == self.source.is_multi_label
        return is_same_kind and task_name == self.task_name

    def _load_vocabulary(self, origin: str) -> Tokenizer:
        config = self.config
        path = config.vocabulary_file or (self._weights and self._weights.vocabulary)
        if not path:
            config.require_vocabulary(f": there is none beside {origin}")
        self.vocabulary_file = path
        rules = self._weights.rules.of_words() if self._weights else None
        tokenizer = Tokenizer.from_file(path, **config.cleaning, rules=rules)
        if not self._weights:
            return tokenizer
        # The shapes of a model's variables do not show its vocabulary and its case.
        if not self._weights.has_vocabulary_of(tokenizer):
            own = self._weights.vocabulary
            config.refuse(
                "spm_model_file" if config.spm_model_file else "vocab_file",
                f"={path}: is not the vocabulary that came with the model, {own}; leave the flag out",
            )
        self._check_cleaning(self._weights, tokenizer)
        return tokenizer

    def _check_cleaning(self, weights: Any, tokenizer: Tokenizer) -> None:
        """Checks that a model was trained on text that is cleaned as the tokenizer does it."""
        for name, value in tokenizer.cleaning.items():
            known = getattr(weights, name)
            if known is not None and known != value:
                self.config.refuse(
                    name,
                    f"is {str(value).lower()}, but the model in {weights.source} was trained with"
                    f" {str(known).lower()}",
                )

    def _resolve_config(self) -> AlbertConfig:
        config, tokenizer = self.config, self.tokenizer
        has_head = self._has_head() and self._fits_labels(self._weights.config.labels)
        if not self.run.do_train and not has_head:
            raise UserError(
                f"{self._origin()}: has no head for {self.task_name} with the outputs"
                f" {', '.join(self.labels)}; fine-tune it with --do_train first"
            )
        if not self.run.do_train:  # programs have already checked this, except for models on a hub
            fixed = {name: getattr(config, name) for name in config.names(of_model="fixed")}
            check_fixed(fixed, self._weights.task_settings, self._weights.source)
        checkpoint = self._weights.config if self._weights else None
        chosen = config.chosen_config(self.run, checkpoint, tokenizer.vocab_size)
        if tokenizer.vocab_size != chosen.vocab_size:
            raise UserError(
                f"{self.vocabulary_file}: has {tokenizer.vocab_size} tokens, but the model's vocab_size is"
                f" {chosen.vocab_size}; give the vocabulary that the model was pretrained with (--spm_model_file or"
                " --vocab_file)"
            )
        check_length(config.max_seq_length, chosen.max_position_embeddings)
        if self._weights:
            weights = depth.fitted(self._weights, chosen)
            self._weights = weights if has_head else weights.without_head()
        is_multi_label = self.source.is_multi_label
        return chosen.with_labels(self.labels, self.task_name, is_multi_label=is_multi_label)

    def _fits_labels(self, labels: Sequence[str]) -> bool:
        """Whether a head with these labels can give those of the data; embeddings have none."""
        is_needed = bool(self.labels) and self.has_output_per_label
        return not is_needed or tuple(labels) == tuple(self.labels)

    def build_model(self, *, dtype: str, recompute_activations: bool, seed: int) -> ModelWithHead:
        """The model; the encoder, and the head if it is of the same task, come from the initial checkpoint."""
        model = self.model_class(
            self.model_config, dtype=dtype, recompute_activations=recompute_activations, seed=seed
        )
        if self._weights:
            report = pretrained.assign_weights(model.named_variables(), self._weights)
            self._initialized = report.initialized
            is_new = any(not name.startswith("bert/") for name in report.initialized)
            labels = self.model_config.labels if self.labels else ()
            named = f" with {', '.join(labels)}" if len(labels) < 20 else ""
            head = f"a new one for {self.task_name}{named}" if is_new else "its own"
            print(f"{report.describe(self._weights.source)}\n  head: {head}", flush=True)
        else:
            self._initialized = list(model.named_variables())
            print("no --init_checkpoint: the model starts from random weights", flush=True)
        if self._teacher_weights:
            self._teacher, _ = pretrained.build_model(self._teacher_weights, dtype=dtype)
        return model

    def _read_teacher(self) -> Any:
        """The weights of --teacher, if there is one."""
        path = getattr(self.config, "teacher", "")
        if not path:
            return None
        weights = pretrained.read_weights(path)
        expected = self.model_class.__name__, tuple(self.labels)
        found = weights.model_class, tuple(weights.config.labels)
        if self.source.is_multi_label or len(self.labels) == 1:
            self.config.refuse("teacher", "is for tasks with one of several labels")
        if found[0] != expected[0] or not self._fits_labels(weights.config.labels):
            words = [f"{kind} with {', '.join(labels[:9])}" for kind, labels in (expected, found)]
            self.config.refuse("teacher", f"={path}: expected {words[0]}, got {words[1]}")
        if not weights.has_vocabulary_of(self.tokenizer):
            self.config.refuse("teacher", f"={path}: has another vocabulary than the model")
        self._check_cleaning(weights, self.tokenizer)
        positions = weights.config.max_position_embeddings
        if self.config.max_seq_length > positions:
            reason = f"={path}: has {positions} positions, fewer than --max_seq_length"
            self.config.refuse("teacher", reason)
        return weights

    def targets(self, features: Features) -> Features:
        """The outputs of --teacher, if there is one."""
        if self._teacher is None:
            return {}
        outputs = self._teacher(features, training=False)
        return {f"{_TEACHER}{name}": value for name, value in outputs.items()}

    def _teachers_outputs(self, features: Features) -> Outputs:
        """The outputs of --teacher in training; nothing in evaluations or without one."""
        return {
            name.removeprefix(_TEACHER): value
            for name, value in features.items()
            if name.startswith(_TEACHER)
        }

    def _label_loss(
        self, logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, wanted: tf.Tensor | None
    ) -> Ratio:
        """The cross entropy of labels, and as its half the divergence from a teacher's logits, if `wanted` has them."""
        loss = cross_entropy(logits, labels, weights)
        if wanted is None:
            return loss
        temperature = self.config.teacher_temperature  # type: ignore[attr-defined]
        other = divergence(logits, wanted, weights, temperature)
        return Ratio(0.5 * (loss.sum + other.sum), loss.count)

    def vocabulary_files(self) -> Files:
        """The vocabulary's files in the Hugging Face layout."""
        return vocabulary_files(self.tokenizer, self.model_config.max_position_embeddings)

    def save_model(self, model: ModelWithHead, folder: str, history: Mapping[str, Mapping]) -> None:
        """Writes the model in the Hugging Face layout, with its vocabulary and the settings of its features."""
        defined_in = file_of(type(self))
        paths = {name: getattr(self.config, name, "") for name in ("data_dir", "train_file")}
        names = {
            name.replace("_", " "): os.path.basename(path.rstrip("/"))
            for name, path in paths.items()
            if path
        }
        num_examples = self.train_data.num_examples if self.train_data else 0
        initialized = set() if model.uses_pooler else set(self._initialized)
        untrained = [name for name in POOLER if name in initialized]
        pretrained.save_pretrained(
            model,
            folder,
            spm_model_file=self.tokenizer,
            task=self.task_settings() | ({DEFINED_IN: defined_in} if defined_in else {}),
            untrained=untrained,
            card={
                "Data": {"task": self.task_name, **names, "training examples": num_examples},
                **history,
            },
        )

    def task_settings(self) -> dict[str, Any]:
        """The settings that users of the finished model need, such as `max_seq_length`."""
        _, of_features = self.source.featuriser(self.tokenizer)
        settings = {**vars(of_features), **self.config.of_model(self.config.to_dict())}
        for name in ("tokenizer", *TextSettings.names()):  # the vocabulary's files contain these
            settings.pop(name, None)
        return settings

    # --- Data ---

    def _make_data(self) -> None:
        self.tables = {
            split: self.source.features(split, items, self.tokenizer)
            for split, items in self.items.items()
        }
        for table in self.tables.values():
            check_segments(table, self.model_config.type_vocab_size)
        target = device.target_device()
        # Elsewhere, a step is compiled for each shape. Micro-batches would tear rows and labels apart.
        packs = self.packs and target == "CPU" and self.run.gradient_accumulation_steps == 1
        data = {}
        for split, table in self.tables.items():
            lengths, packed = table.lengths, packs and split == "train"
            if split == "train" and not packs:  # random batches are as long as their longest texts
                shape = 1000, self.run.train_batch_size
                lengths = np.random.default_rng(0).choice(lengths, shape).max(axis=1)
            number = 1 if target == "TPU" else 4
            buckets = lengths_to_pad_to(lengths, self.config.max_seq_length, number)
            data[split] = TableData(table, self.source.names(split), buckets, packed=packed)
        self.train_data, self.eval_data = data.get("train"), data.get("eval")
        self.predict_data = data.get("predict")

    # --- Loop ---

    def data_files(self) -> Mapping[str, Mapping[str, str]]:
        return {
            split: {"file": self.source.file(split), "sha256": table.sha256()}
            for split, table in self.tables.items()
            if split != "train"
        }

    def settings(self) -> Mapping[str, Settings | Mapping]:
        data = {"spm_sha256": self.tokenizer.sha256}
        if self.train_data:
            data["train_sha256"] = self.tables["train"].sha256()
        # A released config.json has other such values than a finished run writes.
        foreign = self.model_config.foreign
        labels = {name: value for name, value in foreign.items() if name in _OWN_KEYS}
        return {
            "task": self.config,
            "model": self.model_config.replace(foreign=labels),
            "head": {"model_class": self.model_class.__name__},
            "data": data,
        }

    def resolve(self, run: Any, optimizer: Any) -> tuple[FineTuningRunConfig, OptimizerConfig]:
        """The settings of the loop; values that depend on model and data are filled in."""
        batch_size, width = run.train_batch_size, self.model_config.hidden_size
        num_examples = self.train_data.num_examples if self.train_data else batch_size
        usual_rate = default_learning_rate(width, is_random=self._weights is None)
        optimizer = optimizer.resolved(num_examples, batch_size, usual_rate, self.usual_epochs)
        every = run.eval_every_steps or max(1, -(-optimizer.num_train_steps // 10))
        saves = run.save_checkpoints_steps or every
        run = dataclasses.replace(run, eval_every_steps=every, save_checkpoints_steps=saves)
        return run, optimizer

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of examples."""
        return {"label_loss": tf.reduce_sum(example_weights(features))}

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Cross entropy of the labels."""
        labels, weights = features["label_ids"][:, 0], example_weights(features)
        wanted = self._teachers_outputs(features).get("logits")
        return {"label_loss": self._label_loss(outputs["logits"], labels, weights, wanted)}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Probabilities [B, C]."""
        return {"probabilities": tf.nn.softmax(outputs["logits"])}

    # --- Results ---

    def predictions_file(self) -> str:
        """The file of the answers of --do_predict: a path, or a name inside the run's folder."""
        given = self.run.predictions_file
        if not given:
            return self.usual_predictions_file
        return given if "://" in given else os.path.abspath(given)

    def _answer_files(self, answers: Sequence[Mapping], predictions: Predictions) -> Files:
        """The rows of the file with their answers, as `albert-tf predict` writes them, and the raw predictions."""
        name = self.predictions_file()
        content = answer_table(name, self.source.rows(self.items["predict"]), answers)
        return {name: content, **self._raw_file(predictions, "predict")}

    def _column(self, split: str, name: str) -> np.ndarray:
        """A column with one value per example, [examples]."""
        return self.tables[split].columns[name][:, 0]

    def _raw_file(self, predictions: Predictions, split: str) -> Files:
        """The file of the scores of every example."""
        file = io.BytesIO()
        arrays: dict[str, Any] = dict(predictions)
        np.savez_compressed(file, **arrays)
        return {f"predictions/{split}.npz": file.getvalue()}


class LabelTask(FineTuningTask):
    """A task that predicts one of several labels."""

    answer_key = "label"

    def _values(self, predictions: Predictions, name: str, split: str) -> np.ndarray:
        """A prediction of every item."""
        del split
        return predictions[name]

    def _answers(self, predictions: Predictions, split: str = "eval") -> np.ndarray:
        """Indices of the most probable labels, int [examples]."""
        return np.argmax(self._values(predictions, "probabilities", split), axis=1)

    def _labels_of(self, item: Any) -> Sequence[str]:
        """The labels that an item can have, the first ones of all."""
        return self.labels

    def _describe(self, item: Any, answer: Any, truth: Any, probability: float) -> str:
        """A line about an error: item, answer and truth (indices of labels, or scores), and probability."""
        raise NotImplementedError

    def evaluation_files(self, predictions: Predictions) -> Files:
        """The worst errors (for labels, after a confusion table), and the raw predictions."""
        items, answers = self.items["eval"], self._answers(predictions)
        truths = self._column("eval", self.source.label_columns[0])
        if has_labels := "probabilities" in predictions:
            sureness = self._values(predictions, "probabilities", "eval").max(axis=1)
        else:
            sureness = np.abs(answers - truths)

        def describe(index: int) -> str:
            return self._describe(items[index], answers[index], truths[index], sureness[index])

        table = metrics.format_confusion(answers, truths, self.labels) if has_labels else ""
        report = metrics.error_report(table, sureness, answers != truths, describe)
        return {"predictions/eval_errors.txt": report, **self._raw_file(predictions, "eval")}

    def prediction_files(self, predictions: Predictions) -> Files:
        """The label of every row with the probability of every label, and the raw predictions."""
        answers = self._answers(predictions, "predict")
        counts = collections.Counter(self.labels[answer] for answer in answers).most_common(10)
        shown = ", ".join(f"{label}: {count:,}" for label, count in counts)
        print(f"predicted {shown}", flush=True)
        probabilities = self._values(predictions, "probabilities", "predict")
        rows = []
        for item, answer, row in zip(self.items["predict"], answers, probabilities, strict=True):
            labels = self._labels_of(item)
            rows.append(best_label(self.answer_key, labels, row[: len(labels)], int(answer)))
        return self._answer_files(rows, predictions)


def majority_share(labels: np.ndarray) -> float:
    """Share of the most frequent label among labels int [examples], which is the accuracy without a model."""
    return float(np.bincount(labels).max() / len(labels))
