"""What all fine-tuning tasks share: the model and its new head, the vocabulary, features, the model's folder."""

import abc
import dataclasses
import functools
import hashlib
import io
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf import pretrained
from albert_tf.config import (
    AlbertConfig,
    FineTuningConfig,
    FineTuningOptimizerConfig,
    FineTuningRunConfig,
    OptimizerConfig,
)
from albert_tf.data import TableData
from albert_tf.errors import UserError
from albert_tf.features import prepare
from albert_tf.features.table import FeatureTable, lengths_to_pad_to
from albert_tf.heads import AlbertModel
from albert_tf.records import EXAMPLE_WEIGHTS
from albert_tf.tasks import Features, Files, Predictions, Task
from albert_tf.tasks.model_choice import chosen_config
from albert_tf.tokenization import Tokenizer

EVAL_PREDICTIONS, PREDICTIONS = "predictions/eval.npz", "predictions/predict.npz"
_EXAMPLES_A_CALL = 500


class FineTuningTask(Task):
    """A task that starts from a pretrained encoder; read by its subclasses from top to bottom.

    A subclass reads its files and names its labels in `_read`, and makes features in `_features`.

    Args:
      config: settings of the task.
      run: what is asked for, and the model to start from.

    Raises:
      UserError: the model, the vocabulary, the flags and the files do not fit together.
    """

    keeps = "best"
    model_class: type[AlbertModel]
    task_name: str  # of config.json's finetuning_task
    model_inputs: tuple[str, ...] = ("input_ids", "segment_ids")
    label_column: str = "label_ids"

    def __init__(self, config: FineTuningConfig, run: FineTuningRunConfig):
        self.config = config
        self.run = run
        source = self._source()
        self._weights = pretrained.read_weights(source) if source else None
        self.tokenizer = self._load_vocabulary(source)
        self.labels = tuple(self._weights.config.labels) if self._has_head() else ()
        self._read()
        self.model_config = self._resolve_config()
        self._make_data()

    # --- What a subclass says ---

    @abc.abstractmethod
    def _read(self) -> None:
        """Reads the files of the splits that are wanted, and sets `labels` if the model brings none."""

    @abc.abstractmethod
    def _features(self, split: str) -> FeatureTable | None:
        """The features of "train", "eval" or "predict"; None if it is not wanted."""

    # --- Model ---

    def _source(self) -> str:
        """Where the weights are: the initial checkpoint, or the run itself where nothing is trained."""
        has_run = os.path.isdir(os.path.join(self.run.output_dir, "checkpoints"))
        return (
            self.run.output_dir if not self.run.do_train and has_run else self.run.init_checkpoint
        )

    def _has_head(self) -> bool:
        """Whether the weights have a head of this task."""
        weights = self._weights
        if not weights or weights.model_class != self.model_class.__name__:
            return False
        return weights.config.foreign.get("finetuning_task") == self.task_name

    def _load_vocabulary(self, source: str) -> Tokenizer:
        config = self.config
        path = config.spm_model_file or (source and pretrained.vocabulary_beside(source))
        if not path:
            config.refuse(
                "spm_model_file", f"is required: there is no spiece.model beside {source}"
            )
        self.spm_model_file = path
        return Tokenizer.from_file(path, do_lower_case=config.do_lower_case)

    def _resolve_config(self) -> AlbertConfig:
        config, tokenizer = self.config, self.tokenizer
        if not self.run.do_train and not self._has_head():
            raise UserError(
                f"{self._source()}: has no head for {self.task_name}; fine-tune it with --do_train first"
            )
        chosen = chosen_config(config, self.run, self._weights, tokenizer.vocab_size)
        if tokenizer.vocab_size != chosen.vocab_size:
            raise UserError(
                f"{self.spm_model_file}: has {tokenizer.vocab_size} pieces, but the model's vocab_size is"
                f" {chosen.vocab_size}; give the vocabulary that the model was pretrained with (--spm_model_file)"
            )
        if config.max_seq_length > chosen.max_position_embeddings:
            config.refuse(
                "max_seq_length",
                f"({config.max_seq_length}) is above the model's max_position_embeddings"
                f" {chosen.max_position_embeddings}",
            )
        if self._weights:
            pretrained.check_same_sizes(self._weights, chosen)
            same_labels = tuple(self._weights.config.labels) == tuple(self.labels)
            if not (self._has_head() and same_labels):
                self._weights = self._weights.without_head()
        return chosen.with_labels(self.labels, self.task_name)

    def build_model(self, *, dtype: str, recompute_activations: bool, seed: int) -> AlbertModel:
        """The model, with the encoder of the initial checkpoint, and its head if it is one of this very task.

        Raises:
          UserError: a variable of the encoder is not in the checkpoint.
        """
        model = self.model_class(
            self.model_config, dtype=dtype, recompute_activations=recompute_activations, seed=seed
        )
        if self._weights:
            report = pretrained.assign_weights(model.named_variables(), self._weights)
            head = f"a new head for {self.task_name}" if report.initialised else "its own head"
            print(f"{report.describe(self._weights.source)}; {head}", flush=True)
        else:
            print("no --init_checkpoint: the model starts from random weights", flush=True)
        return model

    def save_model(self, model: AlbertModel, folder: str) -> None:
        """Writes the model in the Hugging Face layout, with its vocabulary."""
        pretrained.save_pretrained(model, folder, spm_model_file=self.spm_model_file)

    # --- Data ---

    def _make_data(self) -> None:
        self.tables = {split: self._features(split) for split in ("train", "eval", "predict")}
        data = {}
        for split, table in self.tables.items():
            if table is not None and not len(table):
                raise UserError(f"{self.task_name}: there is no example to {split} on")
            if table is not None:
                data[split] = TableData(table, self._names(table), self._buckets(table))
        self.train_data, self.eval_data = data.get("train"), data.get("eval")
        self.predict_data = data.get("predict")

    def _names(self, table: FeatureTable) -> list[str]:
        wanted = (*self.model_inputs, self.label_column)
        return [name for name in wanted if name in {*table.sequences, *table.columns}]

    def _buckets(self, table: FeatureTable) -> tuple[int, ...]:
        """The lengths that batches are padded to."""
        on_tpu = bool(tf.config.list_logical_devices("TPU"))
        num_buckets = self.config.length_buckets or (1 if on_tpu else 4)
        return lengths_to_pad_to(table.lengths, self.config.max_seq_length, num_buckets)

    def _build_table(
        self, function: Callable, settings, items: Sequence, description: str
    ) -> FeatureTable:
        """The features of items, from the cache if they are there.

        Args:
          function: `function(settings, items)` makes a table.
          settings: a dataclass of the featuriser, with its tokenizer.
          items: dataclasses of texts and labels.
          description: what messages call them.
        """
        fields = {
            field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)
        }
        tokenizer = fields.pop("tokenizer")
        key = {
            "function": function.__qualname__,
            "settings": fields,
            "vocabulary": tokenizer.sha256,
            "do_lower_case": tokenizer.do_lower_case,
            "items": hashlib.sha256(repr(items).encode("utf-8", "surrogatepass")).hexdigest(),
        }
        make = functools.partial(
            prepare.build,
            function,
            settings,
            items,
            description=f"features of {description}",
            num_workers=self.config.num_workers,
            chunk_size=_EXAMPLES_A_CALL,
        )
        return prepare.cached(self.config.feature_cache_dir, key, make, description=description)

    # --- Loop ---

    def settings(self) -> Mapping[str, Mapping]:
        """The task's settings by group, for the run's config.json."""
        held = {"task": self.config.to_dict(), "model": self.model_config.to_dict()}
        held["head"] = {"model_class": self.model_class.__name__}
        held["data"] = {"spm_sha256": self.tokenizer.sha256}
        if self.train_data:
            held["data"]["train_sha256"] = table_sha256(self.tables["train"])
            held["data"]["num_train_examples"] = self.train_data.num_examples
        return held

    def resolve(
        self, run: FineTuningRunConfig, optimizer: FineTuningOptimizerConfig
    ) -> tuple[FineTuningRunConfig, OptimizerConfig]:
        """The settings of the loop, with what the user left open filled in.

        Raises:
          UserError: the warm-up is longer than the training.
        """
        num_examples = self.train_data.num_examples if self.train_data else run.train_batch_size
        optimizer = optimizer.resolved(
            num_examples,
            run.train_batch_size,
            self.model_config.hidden_size,
            is_random=self._weights is None,
        )
        every = run.eval_every_steps or max(1, -(-optimizer.num_train_steps // 10))
        saves = run.save_checkpoints_steps or every
        run = dataclasses.replace(run, eval_every_steps=every, save_checkpoints_steps=saves)
        return run, optimizer

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of examples."""
        return {"label_loss": tf.reduce_sum(example_weights(features))}

    # --- Results ---

    def _column(self, split: str, name: str) -> np.ndarray:
        """A column of one value, [examples]."""
        return self.tables[split].columns[name][:, 0]

    def _raw_file(self, members: Sequence[Predictions], split: str) -> Files:
        """The predictions themselves, for ensembles; none for an ensemble."""
        if len(members) > 1:
            return {}
        arrays = {**members[0], "table_sha256": np.array(table_sha256(self.tables[split]))}
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)
        return {EVAL_PREDICTIONS if split == "eval" else PREDICTIONS: file.getvalue()}


def example_weights(features: Features) -> tf.Tensor:
    """float32 [B]: 0 for what fills up an evaluation's batch."""
    ones = tf.ones(tf.shape(features["input_ids"])[:1])
    return features.get(EXAMPLE_WEIGHTS, ones)


def averaged(members: Sequence[Predictions], name: str) -> np.ndarray:
    """Mean over the members of an ensemble."""
    return np.mean([member[name] for member in members], axis=0)


def table_sha256(table: FeatureTable) -> str:
    """Hash of a table's contents."""
    return hashlib.sha256(table.to_bytes()).hexdigest()
