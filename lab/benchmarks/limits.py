"""The machine's limits: matrix products with the model's shapes, SentencePiece, and the disk."""

import functools
import os
from collections.abc import Callable

from lab.benchmarks import measure
from lab.benchmarks.inputs import TEXT, VOCABULARY, text_path, vocabulary_path
from lab.benchmarks.measure import BenchSettings, Measurement, Values

# D and F of albert-base.
HIDDEN, INNER = 768, 3072
_WIDTHS = {
    "query, key, value": (HIDDEN, 3 * HIDDEN),
    "attention output": (HIDDEN, HIDDEN),
    "intermediate": (HIDDEN, INNER),
    "output": (INNER, HIDDEN),
}
# Tokens of a batch: 8 x 512 and 16 x 128.
ROWS = (4096, 2048)
_DISK_BYTES = {False: 512 << 20, True: 64 << 20}  # by --quick
_SENTENCEPIECE_BYTES = 8 << 20


def matrix_products(settings: BenchSettings, *, dtype: str) -> Values:
    """Rate of TensorFlow's matrix products with the shapes of albert-base's dense layers.

    Returns:
      By number of rows: `products`, with the values of `repeated` for each product and its `rate` in floating-point
      operations per second, forward ("x W") and backward ("x^T dy", "dy W^T"); and `rate`, for all forward products of
      a layer together.
    """
    import tensorflow as tf

    rates = {}
    for rows in ROWS:
        products = {}
        for name, (width_in, width_out) in _WIDTHS.items():
            x, kernel = normal(dtype, rows, width_in), normal(dtype, width_in, width_out)
            dy = normal(dtype, rows, width_out)
            calls = {
                "x W": functools.partial(tf.matmul, x, kernel),
                "x^T dy": functools.partial(tf.matmul, x, dy, transpose_a=True),
                "dy W^T": functools.partial(tf.matmul, dy, kernel, transpose_b=True),
            }
            for direction, call in calls.items():
                timing = measure.repeated(call, settings.seconds / 24)
                flops = 2 * rows * width_in * width_out
                rate = flops / timing["median"]
                products[f"{name}, {direction}"] = {**timing, "flops": flops, "rate": rate}
        forward = [product for name, product in products.items() if name.endswith("x W")]
        rate = sum(each["flops"] for each in forward) / sum(each["median"] for each in forward)
        rates[str(rows)] = {"rate": rate, "products": products}
    return rates


def normal(dtype: str, *shape: int):
    """A tensor of random numbers."""
    import tensorflow as tf

    return tf.cast(tf.random.stateless_normal(shape, seed=[1, 2]), dtype)


def layer_products(rows: int, dtype: str) -> tuple[Callable[[], None], int]:
    """The forward products of a layer's dense layers.

    Args:
      rows: number of tokens of a batch.
      dtype: "float32" or "bfloat16".

    Returns:
      A function that computes them, and its number of floating-point operations.
    """
    import tensorflow as tf

    pairs = [
        (normal(dtype, rows, width_in), normal(dtype, width_in, width_out))
        for width_in, width_out in _WIDTHS.values()
    ]

    def call() -> None:
        for x, kernel in pairs:
            tf.matmul(x, kernel)

    call()
    flops = sum(2 * rows * width_in * width_out for width_in, width_out in _WIDTHS.values())
    return call, flops


def sentencepiece(settings: BenchSettings) -> Values:
    """Rate at which SentencePiece alone tokenizes clean sentences, on one core.

    Returns:
      The values of `repeated` for a pass through the text, and `bytes_a_second`.
    """
    import sentencepiece as library

    with open(text_path(settings), "rb") as file:
        lines = file.read(_SENTENCEPIECE_BYTES).decode("utf-8", "ignore").lower().splitlines()
    lines = [line for line in lines if line]
    processor = library.SentencePieceProcessor(model_file=vocabulary_path(settings))
    call = functools.partial(processor.encode, lines, num_threads=1)
    timing = measure.repeated(call, settings.seconds / 3)
    num_bytes = sum(len(line.encode()) + 1 for line in lines)
    return {**timing, "bytes_a_second": num_bytes / timing["median"]}


def disk(settings: BenchSettings) -> Values:
    """Rates of writing a file in --work_dir, with fsync, and of reading it, not from the page cache.

    Returns:
      `write` and `read`: the values of `repeated`, and `bytes_a_second`.
    """
    num_bytes = _DISK_BYTES[settings.quick]
    path = settings.work / "disk.bin"
    block = os.urandom(4 << 20)

    def write() -> None:
        with open(path, "wb") as file:
            for _ in range(num_bytes // len(block)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    def read() -> None:
        with open(path, "rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):  # empties the page cache
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(4 << 20):
                pass

    timings = {}
    try:
        for name, call in (("write", write), ("read", read)):
            timing = measure.repeated(call, settings.seconds / 3)
            timings[name] = {**timing, "bytes_a_second": num_bytes / timing["median"]}
    finally:
        path.unlink(missing_ok=True)
    return timings


_FLOAT32 = functools.partial(matrix_products, dtype="float32")
_BFLOAT16 = functools.partial(matrix_products, dtype="bfloat16")
MEASUREMENTS = (
    Measurement("matrix_products.float32", _FLOAT32, in_quick=True),
    Measurement("matrix_products.bfloat16", _BFLOAT16, in_quick=True),
    Measurement("sentencepiece", sentencepiece, inputs=(TEXT, VOCABULARY), in_quick=True),
    Measurement("disk", disk, in_quick=True),
)
# Measured again at the end, to see whether the machine has become slower.
AGAIN = (Measurement("matrix_products_again.float32", _FLOAT32),)
