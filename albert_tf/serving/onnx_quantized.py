"""ONNX graphs whose weights are stored in one byte or half a byte; shape legend: `model/encoder.py`.

Which is how exact, small and fast was measured: docs/results/small_forms.md.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import TensorProto

from albert_tf.formats.weights import Weights
from albert_tf.serving import quantization
from albert_tf.serving.onnx_graph import ENCODER, Graph
from albert_tf.serving.quantization import Rounding

_IN_BYTES = ("kernel", "word_embeddings")  # names of the weights that can be stored as bytes
_AFTER_ACTIVATION = "intermediate/output/dense/kernel"
_MICROSOFT = "com.microsoft"  # operations of ONNX Runtime

# The level of MatMulNBits. In bytes, level 4, it is slower for batches, and with blocks of 64 and more, ONNX Runtime
# 1.32.0 rounds differently for other numbers of rows, so that a vector depends on its batch.
_IN_FLOAT32 = 1

# Activations of one row have the bytes 0 to 255. Most have both signs; those after a GELU are at least -0.17, and most
# of their rows reach more than 1, so that 16 of the 256 bytes are enough for negative values.
_ZERO_POINT = 128
_ZERO_POINTS_AFTER = {"gelu": 16, "gelu_exact": 16}
_LEAST_SCALE = 1e-12  # of a row of zeros


class FloatsFromBytes(Graph):
    """ "int8_weights": weights of one byte, which an engine converts to float32 when it loads the file."""

    def __init__(self, weights: Weights, block_size: int):
        super().__init__(weights, block_size)
        self._floats: dict[str, str] = {}  # weight stored in bytes -> its value in float32

    def weight(self, name: str) -> str:
        """See `Graph.weight`."""
        if not name.endswith(_IN_BYTES):
            return super().weight(name)
        if name not in self._floats:
            as_float = self.op("Cast", self._in_bytes(name), to=TensorProto.FLOAT)
            self._floats[name] = self.op("Mul", as_float, f"{name}_scale")
        return self._floats[name]

    def rows(self, table: str, ids: str) -> str:
        """See `Graph.rows`."""
        in_bytes = self._in_bytes(table)
        taken = self.op("Cast", self.op("Gather", in_bytes, ids), to=TensorProto.FLOAT)
        return self.op("Mul", taken, self.op("Gather", f"{table}_scale", ids))

    def _in_bytes(self, name: str) -> str:
        """A weight stored as int8, under its name; its scales have the name with "_scale"."""
        if not self.has_constant(name):
            is_kernel = name.endswith("kernel")
            make = quantization.of_columns if is_kernel else quantization.of_rows
            in_bytes, scale = make(self.array(name))
            self.constant(name, in_bytes)
            self.constant(f"{name}_scale", scale)
        return name


class ProductsByBatch(FloatsFromBytes):
    """ "int8": products of bytes in the encoder; all activations of a batch share a scale. Else as int8_weights."""

    def __init__(self, weights: Weights, block_size: int):
        super().__init__(weights, block_size)
        self._rounded: dict[str, list[str]] = {}  # value -> its bytes, their scale and zero point

    def product(self, value: str, kernel: str) -> str:
        """See `Graph.product`."""
        if not kernel.startswith(ENCODER):
            return super().product(value, kernel)
        if value not in self._rounded:
            self._rounded[value] = self.several(3, "DynamicQuantizeLinear", value)
        in_bytes, scale, zero = self._rounded[value]
        sums = self.op("MatMulInteger", in_bytes, self._in_bytes(kernel), zero)
        scales = self.op("Mul", scale, f"{kernel}_scale")
        return self.op("Mul", self.op("Cast", sums, to=TensorProto.FLOAT), scales)


class ProductsByRow(FloatsFromBytes):
    """ "int8_rows": as "int8", but each token has a scale of its own, so its values depend on no other text.

    Values that attention averages have two bytes for each activation: with one, they cause most of the error.
    """

    domains = {_MICROSOFT: 1}

    def __init__(self, weights: Weights, block_size: int):
        super().__init__(weights, block_size)
        self._zero_points: dict[
            str, int
        ] = {}  # value -> its zero point, if it is not the usual one
        self._high: dict[str, tuple[str, str]] = {}  # value -> its bytes and their scales
        self._low: dict[str, str] = {}  # value -> bytes of what the first bytes leave

    def activation(self, value: str) -> str:
        """See `Graph.activation`."""
        activated = super().activation(value)
        zero = _ZERO_POINTS_AFTER.get(self.config.hidden_act, _ZERO_POINT)
        self._zero_points[activated] = zero
        return activated

    def product(self, value: str, kernel: str) -> str:
        """See `Graph.product`."""
        if not kernel.startswith(ENCODER):
            return super().product(value, kernel)
        width = len(self.array(kernel))
        high, scale = self._high_bytes(value, width)
        summed = self._sums(high, kernel, 1.0, self._zero_points.get(value, _ZERO_POINT))
        if kernel.endswith("self/value/kernel"):
            low = self._low_bytes(value, width)
            summed = self.op("Add", summed, self._sums(low, kernel, 1 / 254, _ZERO_POINT))
        return self.op("Mul", summed, scale)

    def _sums(self, in_bytes: str, kernel: str, scale: float, zero: int) -> str:
        """A product of bytes, times a scale and those of the kernel's columns, float32."""
        zero_point = self.constant(f"zero_{zero}", np.array(zero, np.uint8))
        columns = self._in_bytes(kernel)
        return self.op(
            "MatMulIntegerToFloat",
            in_bytes,
            columns,
            self.number(scale),
            f"{kernel}_scale",
            zero_point,
            domain=_MICROSOFT,
        )

    def _high_bytes(self, value: str, width: int) -> tuple[str, str]:
        """Activations [..., I] as uint8 [..., I], and the scales of their rows [..., 1]."""
        if value not in self._high:
            zero = self._zero_points.get(value, _ZERO_POINT)
            last = self.integers(-1)
            largest = self.op("ReduceMax", value, last, keepdims=1)
            least = self.op("ReduceMin", value, last, keepdims=1)
            # All of a row must fit: the largest into the bytes above the zero point, the least into those below.
            above = self.op("Mul", largest, self.number(1 / (255 - zero)))
            below = self.op("Mul", least, self.number(-1 / zero))
            scale = self.op("Max", above, below, self.number(_LEAST_SCALE))
            self._high[value] = self._quantized(value, scale, zero, width), scale
        return self._high[value]

    def _low_bytes(self, value: str, width: int) -> str:
        """What `_high_bytes` leaves of activations, at most half a scale, as uint8 [..., I] of a scale / 254."""
        if value not in self._low:
            high, scale = self._high_bytes(value, width)
            zero = self.number(self._zero_points.get(value, _ZERO_POINT))
            steps = self.op("Sub", self.op("Cast", high, to=TensorProto.FLOAT), zero)
            rest = self.op("Sub", value, self.op("Mul", steps, scale))
            fine_scale = self.op("Mul", scale, self.number(1 / 254))
            self._low[value] = self._quantized(rest, fine_scale, _ZERO_POINT, width)
        return self._low[value]

    def _quantized(self, value: str, scale: str, zero: int, width: int) -> str:
        """Values [..., I] as uint8 [..., I], with scales [..., 1]."""
        # QuantizeLinear takes one scale for each row of a matrix: [8, 77, 384] -> [616, 384]
        rows_XI = self.op("Reshape", value, self.integers(-1, width))
        scale_X = self.op("Reshape", scale, self.integers(-1))
        usual = self.constant(f"zeros_{zero}", np.array([zero], np.uint8))
        zero_X = self.op("Expand", usual, self.op("Shape", scale_X))
        in_bytes_XI = self.op("QuantizeLinear", rows_XI, scale_X, zero_X, axis=0)
        return self.op("Reshape", in_bytes_XI, self.op("Shape", value))


class Blocks(FloatsFromBytes):
    """ "int4": half a byte for each weight of the encoder, its pooler and the table of words, with scales by blocks.

    Products are computed in float32. Weights of heads are as in int8_weights.
    """

    domains = {_MICROSOFT: 1}

    def rows(self, table: str, ids: str) -> str:
        """See `Graph.rows`."""
        width = self.array(table).shape[1]
        packed, scale, zero, block_size = self._table(table)
        rows = self.op(
            "GatherBlockQuantized",
            packed,
            ids,
            scale,
            zero,
            domain=_MICROSOFT,
            bits=4,
            block_size=block_size,
            gather_axis=0,
            quantize_axis=1,
        )
        if width % block_size:  # without the padding of the last block
            start = self.integers(0)
            end = self.integers(width)
            axis = self.integers(-1)
            rows = self.op("Slice", rows, start, end, axis)
        return rows

    def product(self, value: str, kernel: str) -> str:
        """See `Graph.product`."""
        if not kernel.startswith("bert/"):
            return super().product(value, kernel)
        rows_OI = self.array(kernel).T
        block_size = quantization.block_size_for(rows_OI.shape[1], self.block_size)
        if not self.has_constant(kernel):
            packed, scale, zero = quantization.in_blocks(rows_OI, block_size)
            in_blocks = packed.reshape(len(packed), -1, block_size // 2)
            self._store(kernel, in_blocks, scale.reshape(-1), zero.reshape(-1))
        return self._products(value, self._parts(kernel), rows_OI.shape, block_size)

    def products_with_rows(self, value_XE: str, table: str, bias: str) -> str:
        """See `Graph.products_with_rows`."""
        packed, scale, zero, block_size = self._table(table)
        num_rows, width = self.array(table).shape
        parts = (
            self.op("Reshape", packed, self.integers(num_rows, -1, block_size // 2)),
            self.op("Reshape", scale, self.integers(-1)),
            self.op("Reshape", zero, self.integers(-1)),
        )
        products_XV = self._products(value_XE, parts, (num_rows, width), block_size)
        return self.op("Add", products_XV, self.weight(bias))

    def _products(
        self, value: str, parts: Sequence[str], shape: tuple[int, int], block_size: int
    ) -> str:
        """[..., K] -> [..., N]: the products with each of N rows of weights.

        Args:
          parts: numbers [N, blocks, block size / 2], scales [N x blocks], zero points [N x bytes of a row].
          shape: N and K.
        """
        num_rows, width = shape
        return self.op(
            "MatMulNBits",
            value,
            *parts,
            domain=_MICROSOFT,
            K=width,
            N=num_rows,
            bits=4,
            block_size=block_size,
            accuracy_level=_IN_FLOAT32,
        )

    def _table(self, name: str) -> tuple[str, str, str, int]:
        """The packed numbers, scales and zero points of a table, as `quantization.in_blocks`, and its block size."""
        table = self.array(name)
        block_size = quantization.block_size_for(table.shape[1], self.block_size)
        if not self.has_constant(name):
            self._store(name, *quantization.in_blocks(table, block_size))
        return *self._parts(name), block_size

    def _store(self, name: str, *arrays: np.ndarray) -> None:
        for part, array in zip(self._parts(name), arrays, strict=True):
            self.constant(part, array)

    @staticmethod
    def _parts(name: str) -> tuple[str, str, str]:
        """The names of a weight's numbers, scales and zero points."""
        return name, f"{name}_scale", f"{name}_zero"


class ProductsByScale(FloatsFromBytes):
    """ "int8_calibrated": products of bytes in the encoder, with scales that were measured on texts.

    Else as int8_weights, also the products after the activation function: they are a third of the work, and in bytes
    with fixed scales they would cause most of the error. The operations are those of ONNX itself, which engines turn
    into products of bytes. A vector does not depend on the other texts of its batch.
    """

    def __init__(self, weights: Weights, roundings: Sequence[Rounding]):
        """`roundings` are those of the values that the encoder multiplies so, in their order; see `calibration.py`."""
        super().__init__(weights, 0)
        self._roundings = roundings
        self._numbers: dict[str, int] = {}  # value -> the place of its rounding
        self._rounded: dict[str, str] = {}  # value -> what its bytes stand for

    def product(self, value: str, kernel: str) -> str:
        """See `Graph.product`."""
        if not has_scale(kernel):
            return super().product(value, kernel)
        number = self._numbers.setdefault(value, len(self._numbers))
        rounding = self._roundings[number]
        if value not in self._rounded:
            self._rounded[value] = self._rounded_value(value, kernel, rounding, number)
        if not self.has_constant(kernel):
            balanced_IO = self.array(kernel) * rounding.balance_I[:, None]
            in_bytes, scale = quantization.of_columns(balanced_IO)
            self.constant(kernel, in_bytes)
            self.constant(f"{kernel}_scale", scale)
            self.constant(f"{kernel}_zero", np.zeros(len(scale), np.int8))
            self._floats[kernel] = self.op(
                "DequantizeLinear", kernel, f"{kernel}_scale", f"{kernel}_zero", axis=1
            )
        return self.op("MatMul", self._rounded[value], self._floats[kernel])

    def _rounded_value(self, value: str, kernel: str, rounding: Rounding, number: int) -> str:
        """Activations [..., I], balanced and rounded to bytes, as float32."""
        # Layers with the same weights share their balance.
        factors_I = self.constant(f"{kernel}_balance", 1 / rounding.balance_I)
        scale = self.constant(f"scale_of_value_{number}", np.array(rounding.scale, np.float32))
        zero = self.constant(f"zero_of_value_{number}", np.array(rounding.zero_point, np.uint8))
        in_bytes = self.op("QuantizeLinear", self.op("Mul", value, factors_I), scale, zero)
        return self.op("DequantizeLinear", in_bytes, scale, zero)


def has_scale(kernel: str) -> bool:
    """Whether the activations before a kernel have a measured scale in `ProductsByScale`."""
    return kernel.startswith(ENCODER) and not kernel.endswith(_AFTER_ACTIVATION)


# --quantization -> the graph, made of weights and a block size
GRAPHS: Mapping[str, Callable[[Weights, int], Graph]] = {
    "none": Graph,
    "int8": ProductsByBatch,
    "int8_rows": ProductsByRow,
    "int8_weights": FloatsFromBytes,
    "int4": Blocks,
}
