"""The data of the fine-tuning tasks: which files make up a split, and how they become features.

The half of a task that needs no model; `data_prep/create_finetuning_data.py` and the runners both stand on it.
"""

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from albert_tf.data import feature_cache
from albert_tf.data.feature_table import FeatureTable
from albert_tf.model.config import (
    OWN_TASK,
    ClassifierConfig,
    FineTuningConfig,
    RaceConfig,
    SquadConfig,
)
from albert_tf.tasks.classification import glue, pair_ranking, tsv
from albert_tf.tasks.classification.text_pairs import PairSettings, TextExample, make_pair_features
from albert_tf.tasks.race import passages
from albert_tf.tasks.squad import windows
from albert_tf.text.tokenizer import Tokenizer

SPLITS = ("train", "eval", "predict")
_FILE_FLAGS = {"train": "train_file", "eval": "eval_file", "predict": "predict_file"}
_OFFICIAL_SPLITS = {"train": "train", "eval": "dev", "predict": "test"}
_ITEMS_A_CALL = 500


class Source(abc.ABC):
    """The data of a task.

    Args:
      config: settings of the task.

    Attributes:
      task_name: what models of the task are marked with.
      labels: names of the model's outputs; empty until they are known.
      label_columns: columns that the losses compare with.
    """

    task_name: str
    labels: tuple[str, ...] = ()
    label_columns: tuple[str, ...] = ("label_ids",)
    sequence_names: tuple[str, ...] = ("input_ids", "segment_ids")

    def __init__(self, config: FineTuningConfig):
        self.config = config

    @abc.abstractmethod
    def read(self, split: str) -> Sequence[Any] | None:
        """The items of "train", "eval" or "predict"; None if no file is named.

        Raises:
          UserError: a file is missing or wrong; names it, and the row.
        """

    @abc.abstractmethod
    def featuriser(self, tokenizer: Tokenizer) -> tuple[Callable, Any]:
        """A function and its settings, so that `function(settings, items)` is a `FeatureTable`."""

    def names(self, split: str) -> list[str]:
        """The sequences and columns that model and losses see."""
        return [*self.sequence_names, *(self.label_columns if split != "predict" else ())]

    def features(self, split: str, items: Sequence[Any], tokenizer: Tokenizer) -> FeatureTable:
        """The features of items, from --feature_cache_dir if they are there."""
        function, settings = self.featuriser(tokenizer)
        fields = {
            field.name: getattr(settings, field.name)
            for field in dataclasses.fields(settings)
            if field.name != "tokenizer"
        }
        key = {
            "function": function.__qualname__,
            "settings": fields,
            "vocabulary": tokenizer.sha256,
            "do_lower_case": tokenizer.do_lower_case,
            "items": hashlib.sha256(repr(items).encode("utf-8", "surrogatepass")).hexdigest(),
        }
        description = f"{self.task_name} {split}"
        make = functools.partial(
            feature_cache.build,
            function,
            settings,
            items,
            description=f"features of {description}",
            num_workers=self.config.num_workers,
            chunk_size=_ITEMS_A_CALL,
        )
        return feature_cache.cached(
            self.config.feature_cache_dir, key, make, description=description
        )


class TextSource(Source):
    """A GLUE task, or a user's own files; items are `TextExample`s.

    Attributes:
      glue: the task's row in the table of GLUE; None for a user's own files.
      is_regression: whether scores are predicted.
    """

    config: ClassifierConfig

    def __init__(self, config: ClassifierConfig):
        super().__init__(config)
        is_own = config.task_key == OWN_TASK
        self.glue = None if is_own else glue.find_task(config.task_name, flag="task_name")
        self.is_regression = config.kind == "regression" if is_own else self.glue.is_regression
        self.task_name = config.task_key
        if self.glue and not self.glue.label_column:
            self.task_name = "mnli"  # AX has no training data: a model of MNLI answers it
        if self.is_regression:
            self.labels = ("score",)
            self.label_columns = ("label_scores",)
        elif self.glue:
            self.labels = self.glue.labels

    def read(self, split: str) -> list[TextExample] | None:
        """See `Source`; the labels of a user's own task are found when its training data is read."""
        config, flag = self.config, _FILE_FLAGS[split]
        path = getattr(config, flag)
        if self.glue and path:
            return glue.read_glue_file(self.glue, path, "test", source=f"--{flag}={path}")
        if self.glue:
            if split == "eval" and not self.glue.label_column:
                return None
            official = _OFFICIAL_SPLITS[split]
            return glue.read_glue(self.glue, config.data_dir, official, flag="data_dir")
        if not path:
            return None
        if split == "train" and not self.labels:
            self.labels = tsv.find_labels(path, label_column=config.label_column, flag=flag)
        is_labelled = split != "predict"
        return tsv.read_own(
            path,
            text_columns=[name.strip() for name in config.text_columns.split(",")],
            label_column=config.label_column if is_labelled else "",
            id_column=config.id_column,
            labels=self.labels if is_labelled and not self.is_regression else None,
            kind=config.kind,
            flag=flag,
        )

    def features(self, split, items, tokenizer):
        """See `Source`; with --pair_ranking, an example of the training data is a pair of rows."""
        table = super().features(split, items, tokenizer)
        if split != "train" or not self.config.pair_ranking:
            return table
        pairs = pair_ranking.pair_up(
            [item.text_a for item in items],
            table.columns["label_ids"][:, 0],
            pair_ranking.POSITIVE_LABELS[self.task_name],
            seed=0,
        )
        return pair_ranking.paired_table(table, pairs)

    def featuriser(self, tokenizer):
        """See `Source`."""
        return make_pair_features, PairSettings(tokenizer, self.config.max_seq_length)


class SquadSource(Source):
    """SQuAD; items are (number, `SquadQuestion`)."""

    config: SquadConfig
    labels = ("start", "end")

    def __init__(self, config: SquadConfig):
        super().__init__(config)
        self.task_name = f"squad{config.version}"
        self.label_columns = ("start_positions", "end_positions")
        if config.version == "2.0":
            self.sequence_names = (*self.sequence_names, "p_mask")
            self.label_columns += ("is_impossible",)

    def read(self, split: str) -> list[tuple[int, windows.SquadQuestion]] | None:
        """See `Source`."""
        flag = _FILE_FLAGS[split]
        path = getattr(self.config, flag)
        if not path:
            return None
        questions = windows.read_squad(
            path, version=self.config.version, flag=flag, need_answers=split != "predict"
        )
        return list(enumerate(questions))

    def featuriser(self, tokenizer):
        """See `Source`."""
        config = self.config
        return windows.make_numbered_windows, windows.WindowSettings(
            tokenizer, config.max_seq_length, config.doc_stride, config.max_query_length
        )


class RaceSource(Source):
    """RACE; items are `RaceQuestion`s."""

    config: RaceConfig
    labels = ("A", "B", "C", "D")
    task_name = "race"

    def read(self, split: str) -> list[passages.RaceQuestion]:
        """See `Source`."""
        return passages.read_race(
            self.config.data_dir,
            _OFFICIAL_SPLITS[split],
            level=self.config.level,
            flag="data_dir",
            need_answers=split != "predict",
        )

    def featuriser(self, tokenizer):
        """See `Source`."""
        config = self.config
        return passages.make_race_features, passages.RaceSettings(
            tokenizer, config.max_seq_length, config.max_qa_length
        )
