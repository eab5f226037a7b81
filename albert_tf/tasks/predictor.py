"""Predictor, the base of the tasks' predictors: a finished model that answers items.

An item is a text, or a dictionary such as {"question": ..., "context": ...}; an answer is a dictionary of values that
JSON can contain. The same functions as in training make the features, so the answers equal those of the runners.
"""

import abc
import contextlib
import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol, overload

import numpy as np

from albert_tf.core.errors import UserError, shortened
from albert_tf.core.settings import Settings
from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.sequences import check_segments
from albert_tf.tasks.text_report import WARNING, TextReport, TokenCounts
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.user_files.table_files import cell, is_missing

Arrays = dict[str, np.ndarray]
Features = Callable[[], Arrays]  # makes those of a batch
Item = str | Mapping[str, Any]
Answer = dict[str, Any]

_WITH_VECTORS = "an embedder or a pretrained model"
# Long texts that are read in windows are answered some at a time. Texts of an ordinary length always stay together, so
# that their batches, and the last digits of the answers, do not depend on it.
_ORDINARY_CHARACTERS = 1 << 14
_LONG_CHARACTERS_AT_A_TIME = 1 << 20


class Compute(Protocol):
    """The outputs of a model for a batch of features, all arrays.

    Attributes:
      tokens_of_batch: the most tokens of a batch, with its padding, which bounds the memory; a longer text is alone. On
        two cores, this number was faster than 2,048 or more (lab/benchmarks/results/2026-11-25/batches.md).
      tokens_of_call: how many tokens take as long as the call of a batch takes besides its tokens. Where texts of
        different lengths would cause more padding, another batch begins. With infinity, none does.
    """

    tokens_of_batch: int = 1024
    tokens_of_call: float = math.inf

    def __call__(self, features: Arrays) -> Arrays: ...

    def every(self, batches: Sequence[Features]) -> Iterable[Arrays]:
        """The outputs for each of several batches, of which there is at least one, in their order."""
        return (self(make()) for make in batches)

    def values(self) -> Iterable[tuple[str, np.ndarray]]:
        """What outputs depend on besides the features, by name, always in the same order."""


class Predictor(abc.ABC):
    """A finished model that answers items, with the functions of its task; see `load_predictor`.

    `predictor(item)` is the answer to one item, `predictor(items)` is `predictor.predict(items)`.

    Args:
      model: a model of any engine, with its `config`.
      task_settings: the settings on which its features depend, including `max_seq_length`.
      batch_size: maximum number of sequences of a batch; batches of long ones have fewer.
      untrained: released names of variables without trained values.
      compute: computes the model's outputs.
    """

    expects: str  # description of an item, for messages
    # Keys of an item that the page of the server asks for one by one ("option A", "option B" fill a list `options`); if
    # empty, it asks for a whole item.
    prompts: tuple[str, ...] = ()
    empty: Item = ""  # the item of an empty line
    line_format: str = "text"  # whether a line is usually a text or a JSON object, "text" or "json"
    default_settings: Mapping[str, Any] = {}  # for folders without `task_settings`, as of others
    sequence_names: tuple[str, ...] = ("input_ids", "segment_ids")  # read besides `input_mask`
    # The model needs at least as many positions; shorter sequences are padded.
    shortest_length: int = 1
    loaded_from: Callable[[], "Predictor"] | None = (
        None  # loads it again; None: made from a model in memory
    )

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        task_settings: Mapping[str, Any],
        batch_size: int,
        untrained: Sequence[str] = (),
        *,
        compute: Compute,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.task_settings = task_settings
        self.batch_size = batch_size
        self._untrained = untrained
        self.compute = compute
        self.report = TextReport()
        self._has_warned_of_texts = False
        self._has_warned_of_unknown = False

    def __reduce__(self):
        """A copy, or the predictor in another process, is loaded from the same path with the same settings."""
        if not self.loaded_from:
            advice = "save the model, and use load_predictor(path)"
            raise UserError(
                f"a predictor of a model in memory cannot be copied or pickled: {advice}"
            )
        return self.loaded_from, (), {"task_settings": self.task_settings}

    @property
    def text_keys(self) -> tuple[str, ...]:
        """Keys of items that are read, and therefore not repeated in answers."""
        is_object = isinstance(self.empty, Mapping)
        return tuple(self.empty) if is_object else ("text", "text_a", "text_b")

    @overload
    def __call__(self, items: Item) -> Answer: ...

    @overload
    def __call__(self, items: Any) -> list[Answer]: ...

    def __call__(self, items):
        """The answer to one item, or `predict` of several."""
        is_one = isinstance(items, str | Mapping)
        return self.predict([items])[0] if is_one else self.predict(items)

    def predict(self, items: Any) -> list[Answer]:
        """The answers to items, in their order; the keys of an answer depend on the kind of model.

        Classifiers: `label`, `probability`, `probabilities`; with several labels `labels`, `probabilities`; regression:
        `score`. Taggers: `entities`, and for words `tags`. SQuAD: `answer`, `probability`, `start`, `end`, for 2.0 also
        `null_odds`. RACE: `answer`, `option`, `probability`, `probabilities`. Embedders: `embedding`. Pretrained
        models: `text` and `masks`, `in_order`, or `embedding`.

        The rows of a `pandas.DataFrame` or a `datasets.Dataset` are items, too, and the texts of a `pandas.Series`.
        Warns once if texts are cut or empty, and once if the vocabulary does not know much of them.
        """
        before = dataclasses.replace(self.report.tokens)
        if hasattr(items, "to_dict") and hasattr(items, "columns"):  # iterating gives its columns
            rows = items.to_dict("records")
            items = [{name: _value(value) for name, value in row.items()} for row in rows]
        elif hasattr(items, "to_dict") and hasattr(items, "dtype"):  # a pandas.Series
            items = [_value(value) for value in items]
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            expected = f"a list of items, each {self.expects}; got {shortened(items)}"
            raise UserError(f"predict expects {expected}: write predict([...])")
        examples = []
        for number, item in enumerate(items, start=1):
            try:
                examples.append(self.check(without_missing(item)))
            except UserError as error:
                raise UserError(f"item {number}: {error}") from None
        answers = self.answered(examples)
        self.warn(before)
        return answers

    def warn(self, before: TokenCounts) -> None:
        """Warns the caller of a public method of what could not be read, once of each kind.

        Args:
          before: the counts of tokens when the method began.
        """
        warned = []
        remarks = self._remarks_on_texts()
        if remarks and not self._has_warned_of_texts:
            self._has_warned_of_texts = True
            warned += remarks
        unknown = self.report.tokens.since(before).warning()
        if unknown and not self._has_warned_of_unknown:
            self._has_warned_of_unknown = True
            warned.append(unknown)
        if warned:
            lines = [line.removeprefix(WARNING) for line in warned]
            warnings.warn("; ".join(lines), stacklevel=3)

    def answered(self, examples: Sequence[Any]) -> list[Answer]:
        """The answers to any number of examples."""
        answers: list[Answer] = []
        for group in _bounded_groups(examples, list(map(self.num_windowed_characters, examples))):
            answers += self.answers(group)
        return answers

    def warm_up(self) -> None:
        """Computes the answer to an empty item, so that the engine is ready for the next; no report counts it."""
        report = self.report
        self.report = TextReport()
        # The task of a user may refuse the item.
        with contextlib.suppress(UserError):
            self.answered([self.check(self.empty)])
        self.report = report

    def num_windowed_characters(self, example: Any) -> int:
        """The length of an example's text that is read in windows, however long it is; 0 if texts are cut."""
        return 0

    def score(self, texts: Iterable[str]) -> list[Answer]:
        """How likely a pretrained model finds texts, which ranks sentences and compares minimal pairs.

        Each token is masked in turn, and its log probability is taken.

        Returns:
          For each text `log_likelihood` (the sum, natural logarithm), the number of `tokens`, and `perplexity` (exp of
          the negative mean; not comparable with that of a left-to-right model, or of another vocabulary).

        Raises:
          UserError: the model has no masked-LM head, or a text is empty or too long.
        """
        raise UserError("this model cannot score texts: it has no masked-LM head")

    def embed(self, texts: str | Iterable[str]) -> np.ndarray:
        """The vectors of texts, float32 [texts, D]; of one text that is not in a list, float32 [D].

        Raises:
          UserError: the model is neither an embedder nor a pretrained model.
        """
        raise UserError(f"this model cannot embed texts: expected {_WITH_VECTORS}")

    def encode(self, texts: str | Iterable[str]) -> np.ndarray:
        """`embed` under the name that it has in sentence-transformers."""
        return self.embed(texts)

    def similarity(self, a: Iterable[str], b: Iterable[str]) -> np.ndarray:
        """The cosines of each of some texts with each of others, float32 [a, b]; for errors see `embed`.

        A model of others may name the product instead, or a distance, which is negative here
        (`similarity_fn_name` in `config_sentence_transformers.json`).
        """
        raise UserError(f"this model cannot compare texts: expected {_WITH_VECTORS}")

    def rank(self, query: str, texts: Iterable[str], top_k: int | None = None) -> list[Answer]:
        """The texts with `index`, `score` and `text`, the best for the query first; of equal scores, the first text.

        The score is that of `similarity` or, of a classifier of pairs, its score or the probability that both belong
        together.

        Args:
          top_k: the number of texts to return; None returns all.

        Raises:
          UserError: the model is neither an embedder, a pretrained model, nor a classifier of pairs with one score or
            two labels.
        """
        raise UserError(
            f"this model cannot rank texts: expected {_WITH_VECTORS}, or a classifier of pairs"
        )

    @abc.abstractmethod
    def check(self, item: Item) -> Any:
        """Converts an item to an example for `answers`."""

    @abc.abstractmethod
    def answers(self, examples: Sequence[Any]) -> list[Answer]:
        """The answers to examples, of which there is at least one, in their order."""

    def refuse(self, item: Item) -> NoReturn:
        """Raises the UserError for an item that does not have the expected form."""
        raise UserError(f"expected {self.expects}; got {shortened(item)}")

    def read_in_windows(self, windows: bool) -> None:
        """Sets whether long texts are read in windows, not cut; for classifiers of one text."""
        if "windows" not in self.task_settings:
            raise UserError("--windows is for models that classify one text")
        self.task_settings = {**self.task_settings, "windows": windows}

    def settings(self, *names: str) -> dict[str, Any]:
        """The settings of the task with the given names."""
        return {name: self.task_settings[name] for name in names}

    def count(self, text: str) -> None:
        """Counts a text, and whether it is empty, for `remarks`."""
        self.report.count_text(text)

    def unnested(self, frame: Any, source: str) -> Any:
        """The rows of a user's file, one for each text to answer; a task may have files that nest them."""
        return frame

    def remarks(self) -> list[str]:
        """Lines that say what could not be read since the predictor was made: empty, cut, and unknown texts."""
        lines = self._remarks_on_texts()
        unknown = self.report.tokens.warning()
        if unknown:
            lines.append(unknown)
        return lines

    def serious_remarks(self) -> dict[str, str]:
        """The lines of `remarks` that are warnings, by their kind: "unknown", "cut"."""
        lines = {"unknown": self.report.tokens.warning()}
        if self.report.most_are_cut(self.task_settings):
            lines["cut"] = next(filter(_is_warning, self._remarks_on_texts()), "")
        return {kind: line for kind, line in lines.items() if line}

    def _remarks_on_texts(self) -> list[str]:
        """Lines that say how many texts were empty, or cut by a setting, since the predictor was made."""
        return self.report.remarks(
            self.task_settings,
            self.model.config.max_position_embeddings,
            may_have_windows=self.may_have_windows(),
        )

    def may_have_windows(self) -> bool:
        """Whether --windows, which is off, would read long texts without cutting them."""
        return False

    def outputs(self, table: FeatureTable) -> Arrays:
        """The model's outputs for every example, in the table's order; padded to the longest example."""
        check_segments(table, self.model.config.type_vocab_size)
        self.report.count_table(table, self.tokenizer)

        # 3 texts of 5, 9 and 6 tokens, 2 in a batch -> ([1, 2], 9) and ([0], 5), and functions that make the features.
        batches = list(
            batches_by_length(
                table.lengths,
                self.batch_size,
                self.compute.tokens_of_batch,
                self.compute.tokens_of_call,
            )
        )
        features = []
        for examples, length in batches:
            padded_length = max(length, self.shortest_length)
            features.append(
                functools.partial(table.batch, examples, padded_length, self.sequence_names)
            )

        # For each batch, its outputs, [2, 9, D] and [1, 5, D] -> [3, 9, D], in the order of the texts.
        outputs_of_batches = list(self.compute.every(features))
        order = np.concatenate([examples for examples, _ in batches])
        restored = np.argsort(order, kind="stable")
        outputs = {}
        for name in outputs_of_batches[0]:
            outputs[name] = _stacked([part[name] for part in outputs_of_batches])[restored]
        return outputs


def _bounded_groups(examples: Sequence[Any], lengths: Sequence[int]) -> Iterator[Sequence[Any]]:
    """The examples in their order, in groups whose long texts need a bounded amount of memory, or are one text."""
    first = 0
    room = _LONG_CHARACTERS_AT_A_TIME
    for place, length in enumerate(lengths):
        cost = max(0, length - _ORDINARY_CHARACTERS)
        if cost > room and place > first:
            yield examples[first:place]
            first = place
            room = _LONG_CHARACTERS_AT_A_TIME
        room -= cost
    if first < len(examples):
        yield examples[first:]


def _is_warning(line: str) -> bool:
    return line.startswith(WARNING)


def without_missing(item: Any) -> Any:
    """An item with empty texts in the place of None and NaN."""
    if isinstance(item, Mapping):
        return {key: without_missing(value) for key, value in item.items()}
    return "" if is_missing(item) else item


def _value(value: Any) -> Any:
    """A value of pandas as text or list, a missing one as an empty text; an object as it is."""
    return value if isinstance(value, Mapping) else cell(value)


def batches_by_length(
    lengths: np.ndarray, most_examples: int, most_tokens: int, most_padding: float = math.inf
) -> Iterator[tuple[np.ndarray, int]]:
    """The examples of each batch, and the length to pad them to; the longest examples come first.

    Args:
      most_padding: of a batch, in tokens; examples that fit into one batch stay together nevertheless.
    """
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        length = int(lengths[order[0]])
        number = max(1, min(most_examples, most_tokens // length))
        if len(lengths) > number:
            # Lengths of 9, 6, 5 -> the first one, two, three have padding of [0, 3, 7] tokens.
            padding = np.cumsum(length - lengths[order[:number]])
            number = int(np.searchsorted(padding, most_padding, side="right"))
        yield order[:number], length
        order = order[number:]


def _stacked(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Joins arrays [B, L, ...] or [B, ...] of several batches, padded to the longest L."""
    if parts[0].ndim < 2:
        return np.concatenate(parts)
    # [2, 9, 384] and [1, 5, 384] -> [3, 9, 384]
    longest = max(part.shape[1] for part in parts)
    padded = []
    for part in parts:
        widths = [(0, 0)] * part.ndim
        widths[1] = (0, longest - part.shape[1])
        padded.append(np.pad(part, widths))
    return np.concatenate(padded)


def defaults_of(settings: type[Settings], *names: str) -> dict[str, Any]:
    """The defaults of some fields of a settings class."""
    return {name: settings.__dataclass_fields__[name].default for name in names}


def best_label(
    key: str, labels: Sequence[str], probabilities: np.ndarray, best: int | None = None
) -> Answer:
    """A label, by default the most probable one, under `key`, its `probability`, and the `probabilities` of all."""
    index = int(probabilities.argmax()) if best is None else best
    return {
        key: labels[index],
        "probability": float(probabilities[index]),
        "probabilities": dict(zip(labels, probabilities.tolist(), strict=True)),
    }
