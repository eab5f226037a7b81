"""Measures in which form, and by which engine, a model is computed fastest on this machine, and how exactly."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.formats.weights import Weights, report_of
from albert_tf.model.head_names import MULTIPLE_CHOICE, SEQUENCE_CLASSIFICATION
from albert_tf.serving import calibration, graph_engines, onnx_files
from albert_tf.serving.exports.form import INT4
from albert_tf.serving.graph_engines import GraphEngine, OpenVino
from albert_tf.serving.onnx_model import OnnxModel
from albert_tf.tasks.predictor import Arrays, Compute, Features, Predictor

# With this many activations to a scale, OpenVINO's products of bytes were faster than with 32, 384 or all of a row, and
# about as exact as those of int8_rows.
_GROUP_SIZE = 128
CALIBRATED = "int8_calibrated"  # the quantization that is made with the texts
_WITH_LABELS = (SEQUENCE_CLASSIFICATION, MULTIPLE_CHOICE)
_TOKENS_OF_BATCH = (512, 1024, 2048, 4096)
_IMPOSSIBLE = -1e4
_HOPELESS = 0.6  # of the fastest: such forms are measured once
_SHARE_FOR_BATCHES = 0.25  # of the seconds
_ENOUGH_SECONDS = 1.0  # of the processor, for one pass over the texts in float32
_FEWEST_TEXTS = 32  # of a pass, however long it takes


@dataclasses.dataclass(frozen=True)
class Form:
    """A way to store a model and to compute with it."""

    quantization: str  # of the ONNX file
    engine: GraphEngine

    def title(self) -> str:
        """Its name in the table."""
        words = [self.quantization.replace("none", "float32"), self.engine.name]
        if isinstance(self.engine, OpenVino):
            words.append(self.engine.precision)
        return ", ".join(words)


REFERENCE = Form("none", graph_engines.PLAIN)
# Those that are the fastest on most machines come first, in case the time is short.
FORMS = (
    REFERENCE,
    Form("int8_rows", graph_engines.PLAIN),
    Form(CALIBRATED, OpenVino("float32", _GROUP_SIZE)),
    Form("int8_weights", OpenVino("float32", _GROUP_SIZE)),
    Form("int8_weights", OpenVino("bfloat16", _GROUP_SIZE)),
    Form("int8", graph_engines.PLAIN),
    Form("none", OpenVino("float32")),
    Form("none", OpenVino("bfloat16")),
    Form(INT4, graph_engines.PLAIN),
)


@dataclasses.dataclass(eq=False)
class Measured:
    """A form of the model, and what was measured."""

    form: Form
    contents: Mapping[str, bytes]  # of its files
    model: OnnxModel
    # [texts], of its outputs with those in float32; without the texts with which the form was made.
    cosines: np.ndarray
    # The share of these texts with the same label; None for models without labels.
    same_answers: float | None
    seconds: list[float] = dataclasses.field(default_factory=list)  # of the processor, of each pass

    @property
    def median_seconds(self) -> float:
        """Processor seconds of a pass over the texts."""
        return float(np.median(self.seconds))

    @property
    def megabytes(self) -> float:
        """The size of its files."""
        return sum(map(len, self.contents.values())) / 1e6


class Tuning:
    """Measures the forms of a model on texts like those that it will answer.

    Args:
      weights: the model.
      predictor: answers the texts; it is asked once for the features.
      examples: what `predictor.check` returned for each text.
      seconds: the time after which nothing new is begun.
    """

    def __init__(
        self, weights: Weights, predictor: Predictor, examples: Sequence[Any], seconds: float
    ):
        self._weights = weights
        self._predictor = predictor
        self._ends = time.perf_counter() + seconds
        self._seconds = seconds
        self._examples = list(examples)
        self._missing = report_of(weights).initialized
        self.measured: list[Measured] = []
        self.failed: dict[str, str] = {}  # title of a form -> why it could not be computed

    @property
    def num_texts(self) -> int:
        """The number of texts of a pass."""
        return len(self._examples)

    def run(self, min_cosine: float = 0.0) -> None:
        """Measures all forms, and then, in turns until the time is over, those that `best` may choose."""
        recorder = self._recorded_in_reasonable_time()
        batches = recorder.batches
        expected = _rows(recorder.outputs)
        for form in FORMS:
            if not graph_engines.is_installed(form.engine.name):
                self.failed[form.title()] = f"needs the package {form.engine.name}"
            elif self._is_over() and self.measured:
                self.failed[form.title()] = "no time was left; --seconds gives more"
            else:
                self._measure(form, batches, expected)

        until = self._ends - _SHARE_FOR_BATCHES * self._seconds
        while time.perf_counter() < until:
            exact = self.exact(min_cosine)
            fastest = min(measured.median_seconds for measured in exact)
            for measured in exact:
                is_hopeless = measured.median_seconds * _HOPELESS > fastest
                if not is_hopeless and time.perf_counter() < until:
                    measured.seconds.append(_seconds_of(measured.model, batches))

    def best(self, min_cosine: float) -> Measured:
        """The fastest form whose median cosine is at least a number; float32 always is."""
        return min(self.exact(min_cosine), key=lambda measured: measured.median_seconds)

    def exact(self, min_cosine: float) -> list[Measured]:
        """The forms whose median cosine is at least a number, and that in float32."""
        return [
            measured
            for measured in self.measured
            if measured.form is REFERENCE or np.median(measured.cosines) >= min_cosine
        ]

    def tokens_of_batch(self, measured: Measured) -> int:
        """The number of tokens of a batch with which a form is fastest, as far as there is time to measure."""
        seconds: dict[int, float] = {}
        usual = measured.model.tokens_of_batch
        for tokens in sorted(_TOKENS_OF_BATCH, key=lambda tokens: tokens != usual):
            if self._is_over() and seconds:
                break
            recorder = self._recorded(tokens)
            # How well batches occupy all cores is seen in wall time only.
            passes = [
                _seconds_of(measured.model, recorder.batches, time.perf_counter) for _ in range(3)
            ]
            seconds[tokens] = min(passes)
        fastest = min(seconds, key=seconds.__getitem__)
        # Another number than the usual one must be worth it: times vary by some percent.
        return fastest if seconds[fastest] < 0.95 * seconds.get(usual, np.inf) else usual

    def _is_over(self) -> bool:
        return time.perf_counter() > self._ends

    def _recorded_in_reasonable_time(self) -> "_Recorder":
        """The batches of the texts; if a pass takes long, of fewer texts, which all later passes then have, too."""
        while True:
            recorder = self._recorded(Compute.tokens_of_batch)
            num_texts = len(self._examples)
            if recorder.seconds <= _ENOUGH_SECONDS or num_texts <= _FEWEST_TEXTS:
                return recorder
            num_fitting = int(num_texts * _ENOUGH_SECONDS / recorder.seconds)
            # At most five sixths of the texts stay, so that this ends; from all parts of the file.
            number = max(_FEWEST_TEXTS, num_fitting * 5 // 6)
            places = np.linspace(0, num_texts - 1, number).astype(int)
            self._examples = [self._examples[place] for place in places]

    def _recorded(self, tokens_of_batch: int) -> "_Recorder":
        """The batches of the texts, and the outputs in float32."""
        compute = self._predictor.compute
        recorder = _Recorder(compute, tokens_of_batch)
        self._predictor.compute = recorder
        try:
            self._predictor.answered(self._examples)
        finally:
            self._predictor.compute = compute
        return recorder

    def _measure(self, form: Form, batches: Sequence[Arrays], expected: np.ndarray) -> None:
        contents = self._contents_of(form.quantization, batches)
        model_class = self._weights.model_class
        model = OnnxModel(contents, self._weights.config, model_class, form.engine)
        try:
            rows = _rows(model.every(_ready(batches)))
        except UserError as error:
            self.failed[form.title()] = str(error)
            return
        except Exception as error:  # of an engine that read the graph, but cannot compute it here
            self.failed[form.title()] = f"cannot compute it ({type(error).__name__})"
            return
        if form.quantization == CALIBRATED:
            # The texts with which it was made would show it more exact than it is for others.
            rows = _of_others(rows)
            expected = _of_others(expected)
        same = None
        if model_class in _WITH_LABELS and len(self._weights.config.labels) > 1:
            same = float(np.mean(rows.argmax(axis=1) == expected.argmax(axis=1)))
        measured = Measured(form, contents, model, _cosines(rows, expected), same)
        measured.seconds.append(_seconds_of(model, batches))
        self.measured.append(measured)

    def _contents_of(self, quantization: str, batches: Sequence[Arrays]) -> dict[str, bytes]:
        if quantization != CALIBRATED:
            return onnx_files.convert(self._weights, self._missing, quantization)
        roundings = calibration.roundings_of(self._weights, self._missing, _every_second(batches))
        return onnx_files.calibrated(self._weights, self._missing, roundings)


class _Recorder(Compute):
    """Keeps the batches that a predictor makes, and what computes them."""

    def __init__(self, compute: Compute, tokens_of_batch: int):
        self.tokens_of_batch = tokens_of_batch
        self.tokens_of_call = compute.tokens_of_call
        self.batches: list[Arrays] = []
        self.outputs: list[Arrays] = []
        self.seconds = 0.0
        self._compute = compute

    def __call__(self, features: Arrays) -> Arrays:
        [outputs] = self.every([lambda: features])
        return outputs

    def every(self, batches: Sequence[Features]) -> list[Arrays]:
        """See `Compute`."""
        made = [make() for make in batches]
        started = time.process_time()
        outputs = [*self._compute.every(_ready(made))]
        self.seconds += time.process_time() - started
        self.batches += made
        self.outputs += outputs
        return outputs

    def values(self) -> Iterable[tuple[str, np.ndarray]]:
        """See `Compute`."""
        return self._compute.values()


def _ready(batches: Sequence[Arrays]) -> list[Features]:
    return [lambda batch=batch: dict(batch) for batch in batches]  # type: ignore[misc]


def _seconds_of(
    model: OnnxModel, batches: Sequence[Arrays], clock: Callable[[], float] = time.process_time
) -> float:
    """Seconds of a pass, by default of the processor, which vary less with what else the machine does meanwhile."""
    started = clock()
    model.every(_ready(batches))
    return clock() - started


def _every_second(batches: Sequence[Arrays]) -> list[Arrays]:
    """The first, third, fifth ... text of all batches; batches of none are left out."""
    halves = []
    first = 0  # the place in the next batch
    for batch in batches:
        number = len(batch["input_ids"])
        if first < number:
            halves.append({name: array[first::2] for name, array in batch.items()})
        first = (first + number) % 2
    return halves


def _of_others(rows: np.ndarray) -> np.ndarray:
    """The rows of the texts that `_every_second` leaves out; of one text alone, its row."""
    return rows[1::2] if len(rows) > 1 else rows


def _rows(outputs: Sequence[Arrays]) -> np.ndarray:
    """All numbers that a model says about each text, float64 [texts, numbers]."""
    rows = []
    longest = max(_numbers_of(output).shape[1] for output in outputs)
    for output in outputs:
        numbers = _numbers_of(output)
        rows.append(np.pad(numbers, ((0, 0), (0, longest - numbers.shape[1]))))
    return np.concatenate(rows)


def _numbers_of(output: Arrays) -> np.ndarray:
    """[B, numbers]: the vectors of a batch or its scores, side by side."""
    floats = [array for array in output.values() if array.dtype.kind == "f"]
    numbers = np.concatenate([array.reshape(len(array), -1) for array in floats], axis=1)
    # The log probability of a position that cannot be an answer is -1e30: it would hide all others.
    return np.where(numbers < _IMPOSSIBLE, 0, numbers).astype(np.float64)


def _cosines(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Of rows [texts, numbers], [texts]."""
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(others, axis=1)
    return (rows * others).sum(axis=1) / np.maximum(lengths, 1e-30)


def describe(tuning: Tuning, best: Measured) -> list[list[str]]:
    """A table of what was measured, its title first; the fastest of those that are exact enough has a star."""
    has_answers = best.same_answers is not None
    title = ["", "texts/s", "MB", "cosine", "least"] + ["same answers"] * has_answers
    table = [title]
    for measured in sorted(tuning.measured, key=lambda measured: measured.median_seconds):
        mark = "* " if measured is best else "  "
        row = [
            mark + measured.form.title(),
            f"{tuning.num_texts / measured.median_seconds:,.1f}",
            f"{measured.megabytes:.1f}",
            f"{np.median(measured.cosines):.4f}",
            f"{measured.cosines.min():.4f}",
        ]
        if has_answers:
            row.append(f"{measured.same_answers:.1%}")
        table.append(row)
    return table
