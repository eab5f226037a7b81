"""The base of fine-tuning tasks: data, losses and files; `start.py` makes the model, `teacher.py` may teach it."""

import dataclasses
import functools
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core.settings import Settings
from albert_tf.data.datasets import TableData
from albert_tf.data.reading import example_weights
from albert_tf.formats import pretrained
from albert_tf.formats.tokenizer_files import vocabulary_files
from albert_tf.formats.weights import POOLER
from albert_tf.model.heads import ModelWithHead
from albert_tf.tasks.definition import DEFINED_IN, file_of
from albert_tf.tasks.settings import FineTuningConfig, FineTuningRunConfig, default_learning_rate
from albert_tf.tasks.source import Source
from albert_tf.tasks.split_data import lengths_of, may_pack, tables_of
from albert_tf.tasks.start import Head, make_start
from albert_tf.tasks.teacher import outputs_of_teacher, read_teacher, taught_cross_entropy
from albert_tf.text.settings import TextSettings
from albert_tf.training.losses import Ratio
from albert_tf.training.settings import OptimizerConfig
from albert_tf.training.task import Features, Files, Outputs, Predictions, Task
from albert_tf.user_files.answer_tables import answer_table

# Of a configuration's entries that are not sizes, those that the task decides.
_ENTRIES_OF_HEAD = (
    "id2label",
    "label2id",
    "finetuning_task",
    "problem_type",
    "classifier_pooling",
    "sentence_embedding",
)


class FineTuningTask(Task):
    """A task that starts from a pretrained encoder; by default, it predicts one of several labels.

    A subclass names the classes of its model and its data, and says what differs: losses, predictions, metrics, files.

    Attributes:
      source: the data; `items` and `tables` are its items and their features, by split, `labels` its labels.
      start: the model before its first step; `model_config` and `tokenizer` are its parts.
      initialized: names of the variables of `build_model`'s model without values of the initial model.
    """

    keeps = "best"
    usual_epochs = 3.0
    usual_predictions_file = "predictions/predictions.tsv"
    model_class: type[ModelWithHead]
    source_class: type[Source]
    head_class: type[Head] = Head
    packs = False  # whether the model and the losses take packed rows

    def __init__(self, config: FineTuningConfig, run: FineTuningRunConfig):
        """Reads all files of a run."""
        self.config = config
        self.run = run
        self.source = self.source_class(config)
        self.task_name = self.source.task_name

        head = self.head_class(self.model_class, self.source)
        self.start = make_start(config, run, self.source, head)
        self.model_config = self.start.config
        self.tokenizer = self.start.tokenizer
        self.initialized: Sequence[str] = ()
        self.items = self.source.items
        self.labels = self.source.labels
        self.teacher = None
        if run.do_train:
            self.teacher = read_teacher(config, head, self.labels, self.tokenizer)

        self.tables = tables_of(self.source, self.tokenizer, self.model_config.type_vocab_size)
        data = {}
        for split, table in self.tables.items():
            is_packed = split == "train" and self.packs and may_pack(run)
            lengths = lengths_of(split, table, config, run, is_packed)
            names = self.source.names(split)
            data[split] = TableData(table, names, lengths, packed=is_packed)
        self.train_data = data.get("train")
        self.eval_data = data.get("eval")
        self.predict_data = data.get("predict")

    # --- The run ---

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
        of_head = {name: value for name, value in foreign.items() if name in _ENTRIES_OF_HEAD}
        return {
            "task": self.config,
            "model": self.model_config.replace(foreign=of_head),
            "head": {"model_class": self.model_class.__name__},
            "data": data,
        }

    def resolve(self, run: Any, optimizer: Any) -> tuple[FineTuningRunConfig, OptimizerConfig]:
        """The settings of the loop; values that depend on model and data are filled in."""
        batch_size = run.train_batch_size
        num_examples = self.train_data.num_examples if self.train_data else batch_size
        is_random = self.start.weights is None
        width = self.model_config.hidden_size
        usual_rate = functools.partial(default_learning_rate, width, is_random=is_random)
        if not self.train_data:
            # Nobody knows how many steps the training had, within which the warm-up would have to end.
            optimizer = dataclasses.replace(optimizer, num_warmup_steps=0)
        optimizer = optimizer.resolved(num_examples, batch_size, usual_rate, self.usual_epochs)
        if self.is_fitted:
            optimizer = dataclasses.replace(optimizer, num_train_steps=1, num_warmup_steps=0)

        tenth_of_training = max(1, -(-optimizer.num_train_steps // 10))
        every = run.eval_every_steps or tenth_of_training
        saves = run.save_checkpoints_steps or every
        run = dataclasses.replace(run, eval_every_steps=every, save_checkpoints_steps=saves)
        return run, optimizer

    def vocabulary_files(self) -> Files:
        """The vocabulary's files in the Hugging Face layout."""
        return vocabulary_files(self.tokenizer, self.model_config.max_position_embeddings)

    # --- Model ---

    def build_model(self, *, dtype: str, recompute_activations: bool, seed: int) -> ModelWithHead:
        """The model; the encoder, and the head if it is of the same task, come from the initial checkpoint."""
        model, report = self.start.build_model(
            self.model_class, dtype=dtype, recompute_activations=recompute_activations, seed=seed
        )
        self.initialized = report.initialized
        labels = self.model_config.labels if self.labels else ()
        print(self.start.describe(report, self.task_name, labels), flush=True)
        if self.teacher:
            self.teacher.build(dtype=dtype)
        return model

    def save_model(self, model: ModelWithHead, folder: str, history: Mapping[str, Mapping]) -> None:
        """Writes the model in the Hugging Face layout, with its vocabulary and the settings of its features."""
        settings = self.task_settings()
        defined_in = file_of(type(self))
        if defined_in:
            settings[DEFINED_IN] = defined_in
        untrained: list[str] = []
        if not model.uses_pooler:
            untrained = [name for name in POOLER if name in self.initialized]
        pretrained.save_pretrained(
            model,
            folder,
            spm_model_file=self.tokenizer,
            task=settings,
            untrained=untrained,
            card={"Data": _facts_about_data(self), **history},
        )

    def task_settings(self) -> dict[str, Any]:
        """The settings that users of the finished model need, such as `max_seq_length`."""
        _, of_features = self.source.featuriser(self.tokenizer)
        settings = {**vars(of_features), **self.config.of_model(self.config.to_dict())}
        for name in ("tokenizer", *TextSettings.names()):  # the vocabulary's files contain these
            settings.pop(name, None)
        return settings

    # --- Losses and predictions ---

    def targets(self, features: Features) -> Features:
        """The outputs of --teacher, if there is one."""
        return self.teacher.targets(features) if self.teacher else {}

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of examples."""
        return {"label_loss": tf.reduce_sum(example_weights(features))}

    def losses(self, outputs: Outputs, features: Features, training: bool) -> Mapping[str, Ratio]:
        """Cross entropy of the labels."""
        del training
        loss = taught_cross_entropy(
            outputs["logits"],
            features["label_ids"][:, 0],
            example_weights(features),
            outputs_of_teacher(features).get("logits"),
            self.config,
        )
        return {"label_loss": loss}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Probabilities [B, C]."""
        return {"probabilities": tf.nn.softmax(outputs["logits"])}

    # --- What subclasses read and write ---

    def column(self, split: str, name: str) -> np.ndarray:
        """A column with one value per example, [examples]."""
        return self.tables[split].columns[name][:, 0]

    def predictions_file(self) -> str:
        """The file of the answers of --do_predict: a path, or a name inside the run's folder."""
        path = self.run.predictions_file
        if not path:
            return self.usual_predictions_file
        return path if "://" in path else os.path.abspath(path)

    def answer_files(self, answers: Sequence[Mapping], predictions: Predictions) -> Files:
        """The rows of the file with their answers, as `albert-tf predict` writes them, and the raw predictions."""
        name = self.predictions_file()
        content = answer_table(name, self.source.rows(self.items["predict"]), answers)
        return {name: content, **raw_file(predictions, "predict")}


def raw_file(predictions: Predictions, split: str) -> Files:
    """The file with the predictions for every example of a split."""
    file = io.BytesIO()
    arrays: dict[str, Any] = dict(predictions)
    np.savez_compressed(file, **arrays)
    return {f"predictions/{split}.npz": file.getvalue()}


def _facts_about_data(task: FineTuningTask) -> dict[str, Any]:
    """Rows of the model card: the task, the names of its files, and how many examples they have."""
    facts: dict[str, Any] = {"task": task.task_name}
    for name in ("data_dir", "train_file"):
        path = getattr(task.config, name, "")
        if path:
            facts[name.replace("_", " ")] = os.path.basename(path.rstrip("/"))
    facts["training examples"] = task.train_data.num_examples if task.train_data else 0
    return facts
