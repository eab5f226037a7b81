"""The data of a fine-tuning task, from files to features, without model and TensorFlow: worker processes start fast."""

import abc
import dataclasses
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from albert_tf.core import files
from albert_tf.core.workers import Workers
from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.held_out import held_out
from albert_tf.tasks.settings import FineTuningConfig, FineTuningRunConfig
from albert_tf.tasks.text_report import TokenCounts, cut_line
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.user_files import table_files
from albert_tf.user_files.table_files import read_table

if TYPE_CHECKING:
    import pandas

FILE_FLAGS = {"train": "train_file", "eval": "eval_file", "predict": "predict_file"}
OFFICIAL_SPLITS = {"train": "train", "eval": "dev", "predict": "test"}
_ITEMS_PER_CALL = 500
_SECONDS_ALONE = 2.0


def read_rows(path: str, flag: str) -> "pandas.DataFrame":
    """The rows of a table; in a file for predictions, empty lines are rows."""
    return read_table(path, source=f"--{flag}={path}", empty_rows=flag == "predict_file")


def check_columns(config: FineTuningConfig, run: FineTuningRunConfig) -> None:
    """Checks the columns of local tables before TensorFlow is loaded, which takes longer than to read their start."""
    for split in config.splits_to_read(run):
        flag = FILE_FLAGS[split]
        path = getattr(config, flag, "")
        columns = config.columns_of_tables(split)
        if path and columns and all(map(files.is_here, files.listed(path))):
            table_files.check_columns(path, columns, f"--{flag}={path}")


class Source(abc.ABC):
    """The data of a task."""

    task_name: str
    labels: tuple[str, ...] = ()  # names of the model's outputs; empty until they are known
    initial_labels: tuple[str, ...] = ()  # of the initial model; kept if a new file has no others
    label_columns: tuple[str, ...] = ("label_ids",)  # of the true labels, for the losses
    # The function of `featuriser`, and the class of its settings: the tokenizer and fields of `config`.
    feature_function: tuple[Callable, type]
    sequence_names: tuple[str, ...] = ("input_ids", "segment_ids")
    # Setting that cuts texts -> what these are called.
    texts: Mapping[str, str] = {"max_seq_length": "texts"}
    name_of_groups = "texts"  # see `group_of`
    # Whether the same groups in training and evaluation data are in order; a task where they are not has `group_of`.
    splits_may_share: bool = True
    is_multi_label: bool = False  # whether an example has any number of labels
    may_have_windows: bool = False  # whether --windows, which is off, would read long texts whole
    _has_warned: bool = False

    def __init__(self, config: FineTuningConfig):
        self.config = config
        self.items: dict[str, Sequence[Any]] = {}  # by split, once they are read

    def read_splits(self, splits: Sequence[str]) -> None:
        """Reads the `items` of the splits that have a file."""
        for split in splits:
            items = self.read(split)
            if items is not None:
                self.items[split] = items
        if self.config.eval_fraction:
            self._hold_out()
        elif getattr(self.config, "eval_file", "") and {"train", "eval"} <= {*self.items}:
            self._warn_of_shared()

    def _hold_out(self) -> None:
        """Moves a share of the examples of "train" to "eval", and says how many."""
        items = self.items["train"]
        groups = [self.group_of(item) for item in items]
        kinds = [self.kind_of(item) for item in items]
        is_held_out = held_out(kinds, groups, self.config.eval_fraction)
        num_held_out = int(is_held_out.sum())
        if not num_held_out:
            reason = f"={self.config.eval_fraction:g}: nothing can be held out of {len(items):,} examples"
            self.config.refuse("eval_fraction", reason)
        pairs = list(zip(items, is_held_out, strict=True))
        self.items["train"] = self.only([item for item, is_out in pairs if not is_out])
        self.items["eval"] = self.only([item for item, is_out in pairs if is_out], "eval")
        print(f"held out: {num_held_out:,} of {len(items):,} examples of {self.file('train')}")
        num_groups = len({*groups})
        if num_groups < len(items):
            several = f"{len(items):,} examples have {num_groups:,} different {self.name_of_groups}"
            print(f"warning: {several}; each of these is on one side only", flush=True)

    def _warn_of_shared(self) -> None:
        """Says how many examples of the user's two files have texts in both, whose scores say nothing of new texts."""
        if self.splits_may_share:
            return
        of_training = {self.group_of(item) for item in self.items["train"]}
        num_shared = sum(self.group_of(item) in of_training for item in self.items["eval"])
        if num_shared:
            shared = f"{num_shared:,} of {len(self.items['eval']):,} examples of --eval_file"
            print(
                f"warning: {shared} have {self.name_of_groups} that are also in --train_file",
                flush=True,
            )

    def group_of(self, item: Any) -> Hashable:
        """What must not be both in training and in evaluation data, such as the text of an example."""
        raise NotImplementedError

    def kind_of(self, item: Any) -> Hashable:
        """What should be as frequent in evaluation data as in training data, such as a label."""
        del item
        return None

    def only(self, items: list[Any], split: str = "train") -> Sequence[Any]:
        """Some of the items of the training data as those of a split."""
        del split
        return items

    @abc.abstractmethod
    def read(self, split: str) -> Sequence[Any] | None:
        """The items of "train", "eval" or "predict"; None if no file is given."""

    def file(self, split: str) -> str:
        """The file of a split, or the folder of the task's files, as it was given."""
        settings = self.config.to_dict()
        if split == "eval" and self.config.eval_fraction:
            split = "train"
        return settings.get(FILE_FLAGS[split]) or settings.get("data_dir", "")

    def rows(self, items: Sequence[Any]) -> "pandas.DataFrame":
        """The rows of the user's file of "predict", to which answers are added; by default the ids of its items."""
        import pandas

        return pandas.DataFrame({"id": [item.id for item in items]})

    def featuriser(self, tokenizer: Tokenizer) -> tuple[Callable, Any]:
        """A function and its settings (a dataclass); `function(settings, items)` returns a `FeatureTable`."""
        function, settings = self.feature_function
        names = [field.name for field in dataclasses.fields(settings) if field.name != "tokenizer"]
        return function, settings(tokenizer, **{name: getattr(self.config, name) for name in names})

    def names(self, split: str) -> list[str]:
        """Names of the sequences and columns that the model and the losses use."""
        return [*self.sequence_names, *(self.label_columns if split != "predict" else ())]

    def features(self, split: str, items: Sequence[Any], tokenizer: Tokenizer) -> FeatureTable:
        """The features of items; prints how long that took, how many texts are cut, and what is unknown."""
        function, settings = self.featuriser(tokenizer)
        started = time.monotonic()
        table = make_features(function, settings, items)
        seconds = time.monotonic() - started
        description = f"{self.task_name} {split}"
        print(f"features of {description}: {len(table):,} examples made in {seconds:.1f} s")
        for line in self.length_report(table, tokenizer.max_length):
            print(f"lengths of {description}: {line}", flush=True)
        counts = TokenCounts()
        counts.add(table.sequences["input_ids"], tokenizer)
        warning = counts.warning()
        if warning and not self._has_warned:
            self._has_warned = True
            print(f"{description}: {warning}", file=sys.stderr, flush=True)
        return table

    def length_report(self, table: FeatureTable, model_limit: int | None = None) -> list[str]:
        """Lines that say how many texts are cut; limits other than --max_seq_length are omitted if they cut none.

        Args:
          model_limit: the most tokens that the model can read; None if it is not known.
        """
        lines = []
        for name, lengths in table.uncut_lengths.items():
            limit = getattr(self.config, name)
            if not len(lengths) or (name != "max_seq_length" and lengths.max() <= limit):
                continue
            texts = self.texts.get(name, "texts")
            has_windows = self.may_have_windows
            line = cut_line(
                lengths, name, limit, model_limit, texts=texts, may_have_windows=has_windows
            )
            lines.append(line)
        return lines


def make_features(
    function: Callable[[Any, Sequence], FeatureTable], settings: Any, items: Sequence
) -> FeatureTable:
    """Makes the features of all items; neither the number of processes nor that of items per call changes them.

    This process begins alone; only after two seconds, worker processes make the rest, as their start takes a second.
    They import the function from its module. If it needs the items' indices, `list(enumerate(items))` are the items.
    """
    starts = range(0, len(items), _ITEMS_PER_CALL)
    chunks = (items[start : start + _ITEMS_PER_CALL] for start in starts)
    tables = []
    end = time.monotonic() + _SECONDS_ALONE
    while time.monotonic() < end:
        chunk = next(chunks, None)
        if chunk is None:
            break
        tables.append(function(settings, chunk))
    with Workers(None, settings) as workers:
        tables += workers.map(function, chunks)
    return FeatureTable.concatenate(tables) if tables else function(settings, [])
