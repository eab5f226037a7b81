#!/usr/bin/env bash
# tensorflow-cpu 2.21.0 (ai-edge-litert 2.3.0): float16 weights of TFLite turn 1e-9 in a formula into 0, and 0 into NaN.
#
# With supported_types = [tf.float16], a file stores weights in 16 bits and computes in float32 on a processor. But every
# constant is a weight to the converter, also a single number in a formula: below 3e-8, it becomes 0, and above 65,504,
# it becomes 65,504. Expected: numbers that take four bytes, and spare none, stay as they are.
# Seen: LayerNorm with epsilon 1e-12 of a row of equal numbers is NaN, not 0; sum / (count + 1e-9) of a text without
# words is NaN, not 0; log(p + 1e-9) of p = 0 is -inf, not -20.7; -1e9 for masked places is -65,504. In int8: no change.
#
# Who meets it: anyone who halves a file of BERT or ALBERT, whose epsilon is 1e-12, or of a mean over words; the inputs
# that show it (an empty text, a row without variance) are rare in tests. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet tensorflow-cpu==2.21.0 ai-edge-litert==2.3.0 keras==3.15.1 numpy==2.4.6
cat >"$folder/check.py" <<'PY'
import os
import sys
from importlib.metadata import version

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy
import tensorflow
from ai_edge_litert.interpreter import Interpreter

print("tensorflow-cpu", version("tensorflow-cpu"), "| ai-edge-litert", version("ai-edge-litert"))
layer_norm = keras.layers.LayerNormalization(epsilon=1e-12)
layer_norm.build([1, 8])
zeros = numpy.zeros([1, 8], numpy.float32)
ones = numpy.ones([1, 8], numpy.float32)


def mean_of_words(sums):
    return sums / (tensorflow.reduce_sum(sums, axis=-1, keepdims=True) + 1e-9)


def log(probabilities):
    return tensorflow.math.log(probabilities + 1e-9)


def mask(masked):
    return masked * -1e9


def in_tflite(function, example, form):
    specs = [tensorflow.TensorSpec(example.shape, tensorflow.float32)]
    traced = tensorflow.function(function, input_signature=specs, autograph=False)
    converter = tensorflow.lite.TFLiteConverter.from_concrete_functions([traced.get_concrete_function()], traced)
    if form != "float32":
        converter.optimizations = [tensorflow.lite.Optimize.DEFAULT]
    if form == "float16":
        converter.target_spec.supported_types = [tensorflow.float16]
    interpreter = Interpreter(model_content=converter.convert())
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], example)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


seen = {}
for name, function, example in (
    ("LayerNorm", layer_norm, ones),
    ("mean", mean_of_words, zeros),
    ("log", log, zeros),
    ("mask", mask, ones),
):
    for form in ("float32", "int8", "float16"):
        values = in_tflite(function, example, form)
        assert (numpy.isnan(values) == numpy.isnan(values[0, 0])).all()
        seen[name, form] = round(float(values[0, 0]), 1)
    print(name, *(f"| {form} {seen[name, form]}" for form in ("float32", "int8", "float16")))
exact = {"LayerNorm": "0.0", "mean": "0.0", "log": "-20.7", "mask": "-1000000000.0"}
halved = {"LayerNorm": "nan", "mean": "nan", "log": "-inf", "mask": "-65504.0"}
expected = {(name, form): value for name, value in exact.items() for form in ("float32", "int8")}
expected |= {(name, "float16"): value for name, value in halved.items()}
sys.exit({key: str(value) for key, value in seen.items()} != expected)
PY
"$folder/venv/bin/python" "$folder/check.py"
