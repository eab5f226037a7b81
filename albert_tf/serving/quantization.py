"""Weights of one byte, such that products with unsigned bytes are the same numbers on every processor.

Processors with AVX2 and without VNNI add the products of two neighbors in 16 bits, which saturate: 2 x 255 x 127 is
more than 32,767. So two neighboring weights of an output may sum to at most 128: 255 x 128 is less.
"""

import numpy as np

_LARGEST = 127
_LARGEST_PAIR = 128


def of_columns(kernel_IO: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A kernel as int8 [I, O], and its scales [O]: kernel = int8 x scale, up to rounding."""
    padded = np.concatenate([kernel_IO, np.zeros([len(kernel_IO) % 2, kernel_IO.shape[1]])])
    pairs = np.abs(padded[::2] + padded[1::2]).max(axis=0)
    largest = np.maximum(np.abs(kernel_IO).max(axis=0) / _LARGEST, pairs / _LARGEST_PAIR)
    scale_O = np.where(largest > 0, largest, 1).astype(np.float32)
    rounded = np.rint(padded / scale_O)
    first, second = rounded[::2], rounded[1::2]
    # Both rounded away from zero, a pair can exceed the limit by one.
    excess = np.clip(first + second, -_LARGEST_PAIR, _LARGEST_PAIR) - (first + second)
    first += excess
    return np.clip(rounded, -_LARGEST, _LARGEST).astype(np.int8)[: len(kernel_IO)], scale_O


def of_rows(table_VE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A table as int8 [V, E], and its scales [V, 1]."""
    largest = np.abs(table_VE).max(axis=1, keepdims=True) / _LARGEST
    scale_V1 = np.where(largest > 0, largest, 1).astype(np.float32)
    return np.rint(table_VE / scale_V1).astype(np.int8), scale_V1
