"""Measures on texts how the activations of an encoder are rounded to bytes with scales that are the same for all texts.

Before a product, each channel of the activations is divided by a number, and the row of the kernel multiplied by it,
so that a few large channels do not take all of the range (SmoothQuant, Xiao et al. 2023, section 4). The exponent that
balances both is that with the least error of the product. Shape legend: `model/encoder.py`; I is the width of a
product's input, O of its output, and R a number of tokens.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.formats.weights import Weights
from albert_tf.serving import graph_engines, onnx_files, quantization
from albert_tf.serving.onnx_graph import Graph
from albert_tf.serving.onnx_model import MODEL, complete, inputs_of
from albert_tf.serving.onnx_quantized import has_scale
from albert_tf.serving.parts import parts_without
from albert_tf.serving.quantization import Rounding
from albert_tf.tasks.predictor import Arrays

_MOST_TOKENS = 20_000  # of all texts, with padding
_TOKENS_AT_A_TIME = 512  # all activations of so many are in memory at once
_ROWS_AT_A_TIME = 16  # tokens of which all activations are kept
_MOST_ROWS = 256
_MOST_COLUMNS = 256  # outputs of which the error is computed
_EXPONENTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
# Other texts reach further: with 1, single sentences of another kind lost twice as much.
_MARGIN = 1.25  # of the range, compared with that of the texts
_LEAST = 1e-5  # of the largest value of a channel


class _Recorded(Graph):
    """A graph in float32 with outputs for what the encoder multiplies with kernels: "input_0", "input_1", ..."""

    def __init__(self, weights: Weights, block_size: int):
        super().__init__(weights, block_size)
        self.kernels: dict[str, list[str]] = {}  # value -> the kernels with which it is multiplied

    def product(self, value: str, kernel: str) -> str:
        """See `Graph.product`."""
        if has_scale(kernel):
            self.kernels.setdefault(value, []).append(kernel)
        return super().product(value, kernel)


class _Activations:
    """Activations of texts before products with some kernels.

    Attributes:
      least_I, largest_I: the ends of each channel, of all tokens.
      rows: the activations of some tokens, [R, I] each.
    """

    def __init__(self, kernels: Sequence[str]):
        self.kernels = tuple(kernels)
        self.least_I = np.array(np.inf)
        self.largest_I = np.array(-np.inf)
        self.rows: list[np.ndarray] = []

    def add(self, tokens_RI: np.ndarray) -> None:
        """Adds the tokens of a batch."""
        self.least_I = np.minimum(self.least_I, tokens_RI.min(axis=0))
        self.largest_I = np.maximum(self.largest_I, tokens_RI.max(axis=0))
        self.rows.append(_spread(tokens_RI, _ROWS_AT_A_TIME))

    def rounding(self, balance_I: np.ndarray) -> Rounding:
        """How balanced activations are rounded."""
        least = float((self.least_I / balance_I).min())
        largest = float((self.largest_I / balance_I).max())
        return Rounding.between(balance_I, _MARGIN * least, _MARGIN * largest)


def roundings_of(
    weights: Weights, missing: Collection[str], batches: Sequence[Arrays]
) -> list[Rounding]:
    """How each value that the encoder multiplies with kernels is rounded, in the order of the graph.

    Args:
      missing: see `onnx_files.convert`.
      batches: features of texts, at least one batch.
    """
    recorded = _recorded(weights, missing, batches)
    # Layers with shared weights have the same kernels, and so the same balance, but scales of their own.
    by_kernels: dict[tuple[str, ...], list[int]] = {}
    for number, activations in enumerate(recorded):
        by_kernels.setdefault(activations.kernels, []).append(number)
    roundings: dict[int, Rounding] = {}
    for kernels, numbers in by_kernels.items():
        arrays = [np.asarray(weights.arrays[kernel], np.float32) for kernel in kernels]
        kernel_IO = np.concatenate(arrays, axis=1)
        roundings_of_uses = _roundings(kernel_IO, [recorded[number] for number in numbers])
        roundings.update(zip(numbers, roundings_of_uses, strict=True))
    return [roundings[number] for number in range(len(recorded))]


def _recorded(
    weights: Weights, missing: Collection[str], batches: Sequence[Arrays]
) -> list[_Activations]:
    """The activations before all products of the encoder, for texts of all lengths."""
    content, kernels, names = _graph_with_activations(weights, missing)
    run = graph_engines.PLAIN.compile(content, 0)
    recorded = [_Activations(of_value) for of_value in kernels]
    for features in _parts(batches):
        inputs = inputs_of(features)
        outputs = run({name: inputs[name] for name in names})
        is_token_X = features["input_mask"].reshape(-1) > 0
        for number, activations in enumerate(recorded):
            # [8, 64, 384] -> [512, 384] -> [430, 384], without the padding.
            values_BLI = outputs[_name(number)]
            values_XI = values_BLI.reshape(-1, values_BLI.shape[-1])
            activations.add(values_XI[is_token_X])
    return recorded


def _graph_with_activations(
    weights: Weights, missing: Collection[str]
) -> tuple[bytes, list[list[str]], list[str]]:
    """A file that also has the activations as outputs, the kernels of each, and the names of its inputs."""
    made: list[_Recorded] = []

    def make() -> Graph:
        made.append(_Recorded(weights, 0))
        return made[-1]

    graph, inputs = onnx_files.graphs_of(weights, parts_without(missing), make)[MODEL]
    recorded = made[0]
    for number, (value, kernels) in enumerate(recorded.kernels.items()):
        width = len(weights.arrays[kernels[0]])
        graph.output(_name(number), value, "sequences", "length", width)
    kernels_of_values = list(recorded.kernels.values())
    return graph.model(inputs).SerializeToString(), kernels_of_values, list(inputs)


def _name(number: int) -> str:
    return f"input_{number}"


def _parts(batches: Sequence[Arrays]) -> Iterator[Arrays]:
    """The texts of batches, which are sorted by length, some at a time; of many tokens, those of some batches."""
    tokens = sum(batch["input_ids"].size for batch in batches)
    for batch in batches[:: math.ceil(tokens / _MOST_TOKENS)]:
        features = complete(batch)
        tokens_of_text = features["input_ids"][0].size
        number = max(1, _TOKENS_AT_A_TIME // tokens_of_text)
        for first in range(0, len(features["input_ids"]), number):
            yield {name: array[first : first + number] for name, array in features.items()}


def _spread(items: Any, most: int) -> Any:
    """At most some of the items of a list or an array, from all parts of it."""
    return items[:: math.ceil(len(items) / most)]


def _roundings(kernel_IO: np.ndarray, uses: Sequence[_Activations]) -> list[Rounding]:
    """How the activations of each use of a kernel are rounded: the balance with the least error of all uses."""
    # The error is computed for some outputs of the kernel: [384, 1152] -> [384, 231]
    some_IO = _spread(kernel_IO.T, _MOST_COLUMNS).T
    roundings_of_exponents = []
    errors = []
    for exponent in _EXPONENTS:
        balance_I = _balance(kernel_IO, uses, exponent)
        in_bytes_IO, scale_O = quantization.of_columns(some_IO * balance_I[:, None])
        rounded_IO = in_bytes_IO * scale_O
        roundings = [use.rounding(balance_I) for use in uses]
        pairs = zip(uses, roundings, strict=True)
        errors.append(sum(_error(use, rounding, some_IO, rounded_IO) for use, rounding in pairs))
        roundings_of_exponents.append(roundings)
    return roundings_of_exponents[int(np.argmin(errors))]


def _balance(kernel_IO: np.ndarray, uses: Sequence[_Activations], exponent: float) -> np.ndarray:
    """By what each channel is divided, float32 [I]; the geometric mean is 1."""
    of_uses = [np.maximum(-use.least_I, use.largest_I) for use in uses]
    of_activations_I = np.maximum(np.max(of_uses, axis=0), _LEAST)
    of_weights_I = np.maximum(np.abs(kernel_IO).max(axis=1), _LEAST)
    balance_I = of_activations_I**exponent / of_weights_I ** (1 - exponent)
    return (balance_I / np.exp(np.log(balance_I).mean())).astype(np.float32)


def _error(
    use: _Activations, rounding: Rounding, kernel_IO: np.ndarray, rounded_IO: np.ndarray
) -> float:
    """The squared error of a product with a balanced and rounded kernel, relative to the exact one's squares."""
    rows_RI = _spread(np.concatenate(use.rows), _MOST_ROWS)
    expected_RO = rows_RI @ kernel_IO
    difference_RO = rounding.rounded(rows_RI) @ rounded_IO - expected_RO
    squares = max(float(np.square(expected_RO).sum()), _LEAST**2)
    return float(np.square(difference_RO).sum()) / squares
