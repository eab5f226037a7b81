"""Weights of one byte or half a byte.

Products of weights of one byte with unsigned bytes are the same numbers on every processor. Processors with AVX2 and
without VNNI add the products of two neighbors in 16 bits, which saturate: 2 x 255 x 127 is more than 32,767. So two
neighboring weights of an output may sum to at most 128: 255 x 128 is less.
"""

from typing import NamedTuple

import numpy as np

_LARGEST = 127
_LARGEST_UNSIGNED = 255
_LARGEST_PAIR = 128
_LARGEST_HALF_BYTE = 15
_LEAST_BLOCK = 16  # of ONNX Runtime


class Rounding(NamedTuple):
    """How activations are rounded before a product: (activations / balance) / scale + zero point, as uint8."""

    balance_I: np.ndarray  # float32 [I], above 0; the rows of the kernel are multiplied by it
    scale: float
    zero_point: int

    @classmethod
    def between(cls, balance_I: np.ndarray, least: float, largest: float) -> "Rounding":
        """For balanced activations in a range, which is extended to contain 0; others get the value of its end."""
        least = min(least, 0.0)
        largest = max(largest, 0.0)
        scale = (largest - least) / _LARGEST_UNSIGNED or 1.0
        return cls(balance_I, scale, round(-least / scale))

    def rounded(self, rows_RI: np.ndarray) -> np.ndarray:
        """What the bytes of activations stand for, before the rows of the kernel: [R, I]."""
        shifted_RI = np.rint(rows_RI / self.balance_I / self.scale) + self.zero_point
        return (np.clip(shifted_RI, 0, _LARGEST_UNSIGNED) - self.zero_point) * self.scale


def of_columns(kernel_IO: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A kernel as int8 [I, O], and its scales [O]: kernel = int8 x scale, up to rounding."""
    # A kernel [5, 3] -> [6, 3], so that all inputs have a neighbor: the sums of 3 pairs, [3, 3] -> [3].
    padded = np.concatenate([kernel_IO, np.zeros([len(kernel_IO) % 2, kernel_IO.shape[1]])])
    pairs = np.abs(padded[::2] + padded[1::2]).max(axis=0)
    largest = np.maximum(np.abs(kernel_IO).max(axis=0) / _LARGEST, pairs / _LARGEST_PAIR)
    scale_O = np.where(largest > 0, largest, 1).astype(np.float32)

    # Both rounded away from zero, a pair can exceed the limit by one, which its first weight then loses.
    rounded = np.rint(padded / scale_O)
    first = rounded[::2]
    second = rounded[1::2]
    excess = np.clip(first + second, -_LARGEST_PAIR, _LARGEST_PAIR) - (first + second)
    first += excess  # a view: changes `rounded`
    return np.clip(rounded, -_LARGEST, _LARGEST).astype(np.int8)[: len(kernel_IO)], scale_O


def of_rows(table_VE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A table as int8 [V, E], and its scales [V, 1]."""
    largest = np.abs(table_VE).max(axis=1, keepdims=True) / _LARGEST
    scale_V1 = np.where(largest > 0, largest, 1).astype(np.float32)
    return np.rint(table_VE / scale_V1).astype(np.int8), scale_V1


def block_size_for(width: int, largest: int) -> int:
    """The size of the blocks of a row: the largest that does not pad the row by more than an eighth, or the least.

    A size is a power of two, at least 16.
    """
    size = largest
    while size > _LEAST_BLOCK and -width % size > width / 8:
        size //= 2
    return size


def in_blocks(rows_NK: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows as numbers from 0 to 15, two in a byte, the first in the low bits; blocks of a row have their own scale.

    A row is padded to whole blocks. A value is (number - zero point) x scale, up to rounding.

    Returns:
      The numbers, uint8 [N, padded K / 2]; scales, float32 [N, blocks]; zero points, uint8 [N, blocks / 2 rounded up].
    """
    num_rows, width = rows_NK.shape
    padded_NK = np.pad(rows_NK, ((0, 0), (0, -width % block_size)))
    blocks_NBS = padded_NK.reshape(num_rows, -1, block_size)
    # Zero is among the values of each block, so that it is stored exactly.
    least_NB = np.minimum(blocks_NBS.min(axis=-1), 0)
    largest_NB = np.maximum(blocks_NBS.max(axis=-1), 0)
    range_NB = (largest_NB - least_NB) / _LARGEST_HALF_BYTE
    scale_NB = np.where(range_NB > 0, range_NB, 1).astype(np.float32)
    zero_NB = np.rint(-least_NB / scale_NB)
    numbers_NBS = np.rint(blocks_NBS / scale_NB[..., None]) + zero_NB[..., None]
    numbers_NBS = np.clip(numbers_NBS, 0, _LARGEST_HALF_BYTE)
    return _in_pairs(numbers_NBS.reshape(num_rows, -1)), scale_NB, _in_pairs(zero_NB)


def _in_pairs(numbers_NK: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 15, two in a byte: [N, K] -> uint8 [N, K / 2 rounded up]."""
    width = numbers_NK.shape[1]
    even_NK = np.pad(numbers_NK, ((0, 0), (0, width % 2))).astype(np.uint8)
    return even_NK[:, ::2] | (even_NK[:, 1::2] << 4)
