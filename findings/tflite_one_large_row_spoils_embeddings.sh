#!/usr/bin/env bash
# tensorflow-cpu 2.21.0 (ai-edge-litert 2.3.0): one row of large numbers spoils all other rows of an embedding table.
#
# With converter.optimizations = [Optimize.DEFAULT], the weights of a dense layer get a scale for each output, and a table
# that is looked up (tf.gather, Embedding) gets one scale for all its rows, without a word. Numbers are in steps of the
# largest one / 127. Expected: a scale for each row, or the table left in float32, as a row is used by itself.
# Seen: 1,000 rows of normal numbers, of which row 7 is multiplied by 50: the others have a cosine of 0.92 with what they
# were (0.9999 without that row); by 300: 998 of the others are zeros. Dense weights of the same numbers: over 0.999.
#
# Who meets it: anyone who puts a table with rows of unlike size on a phone: rows of added tokens, of an item that all
# have bought, of padding that was never trained. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet tensorflow-cpu==2.21.0 ai-edge-litert==2.3.0 numpy==2.4.6
cat >"$folder/check.py" <<'PY'
import os
import sys
from importlib.metadata import version

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy
import tensorflow
from ai_edge_litert.interpreter import Interpreter

print("tensorflow-cpu", version("tensorflow-cpu"), "| ai-edge-litert", version("ai-edge-litert"))
ROWS, WIDTH = 1000, 64
every_row = numpy.arange(ROWS, dtype=numpy.int32)


def run(function, example):
    """The function in TFLite, with one byte for each weight, at `example`."""
    spec = tensorflow.TensorSpec(example.shape, example.dtype)
    graph = tensorflow.function(function, input_signature=[spec], autograph=False).get_concrete_function()
    converter = tensorflow.lite.TFLiteConverter.from_concrete_functions([graph], graph)
    converter.optimizations = [tensorflow.lite.Optimize.DEFAULT]
    interpreter = Interpreter(model_content=converter.convert())
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], example)
    interpreter.invoke()
    num_scales = [
        len(detail["quantization_parameters"]["scales"])
        for detail in interpreter.get_tensor_details()
        if detail["dtype"] == numpy.int8 and len(detail["shape"]) == 2
    ]
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), num_scales


def cosines(found, expected):
    lengths = numpy.linalg.norm(found, axis=1) * numpy.linalg.norm(expected, axis=1)
    return (found * expected).sum(1) / numpy.maximum(lengths, 1e-9)


seen = []
for factor in (1, 50, 300):
    table = numpy.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(numpy.float32)
    table[7] *= factor
    weights = tensorflow.Variable(table)
    rows, scales_of_table = run(lambda ids: tensorflow.gather(weights, ids), every_row)
    others = numpy.delete(cosines(rows, table), 7)
    one_hot = numpy.eye(WIDTH, dtype=numpy.float32)
    columns, scales_of_dense = run(lambda x: tensorflow.matmul(x, weights, transpose_b=True), one_hot)
    in_dense = numpy.delete(cosines(columns.T, table), 7)
    zeros = int((numpy.abs(rows).max(axis=1) == 0).sum())
    print(
        "row 7 x", factor, "| scales: table", scales_of_table, "dense", scales_of_dense,
        "| median cosine of the others: table", round(float(numpy.median(others)), 4),
        "dense", round(float(numpy.median(in_dense)), 4), "| rows of zeros", zeros,
    )
    seen.append((float(numpy.median(others)), float(numpy.median(in_dense)), zeros))
sys.exit(
    not (
        seen[0][0] > 0.999
        and seen[1][0] < 0.95
        and seen[2][2] == ROWS - 2
        and min(dense for _, dense, _ in seen) > 0.999
    )
)
PY
"$folder/venv/bin/python" "$folder/check.py"
