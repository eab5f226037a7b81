#!/usr/bin/env bash
# safetensors 0.8.0, NumPy: a transposed array is written with its numbers in the wrong places, silently.
#
# `safetensors.numpy.save` writes the memory of an array as it lies, under the shape that the array has. Its description
# asks for contiguous arrays, but nothing checks it, while the function for PyTorch refuses such a tensor.
# Expected: the numbers in the order of the shape, as `numpy.save` writes them, or an error.
# Seen: a 2 x 3 array 0 to 5, saved as its transpose, is read as [[0, 1], [2, 3], [4, 5]], not [[0, 3], [1, 4], [2, 5]].
#
# Who meets it: anyone who turns kernels around between TensorFlow's layout and PyTorch's, and writes them: the shapes
# are right, the model loads, and its outputs are noise. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet safetensors==0.8.0 numpy==2.4.6
cat >"$folder/check.py" <<'PY'
import io
import sys
from importlib.metadata import version

import numpy
import safetensors.numpy

print("safetensors", version("safetensors"), "| numpy", numpy.__version__)
kernel = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)

content = io.BytesIO()
numpy.save(content, kernel.T)
content.seek(0)
by_numpy = numpy.load(content)
by_safetensors = safetensors.numpy.load(safetensors.numpy.save({"kernel": kernel.T}))["kernel"]
of_copy = safetensors.numpy.load(safetensors.numpy.save({"kernel": kernel.T.copy()}))["kernel"]

print("given", kernel.T.tolist())
print("read back: numpy", by_numpy.tolist(), "| safetensors", by_safetensors.tolist(), "| of a copy", of_copy.tolist())
wrong = by_safetensors.shape == (3, 2) and by_safetensors.tolist() == [[0, 1], [2, 3], [4, 5]]
sys.exit(not (wrong and (of_copy == kernel.T).all() and (by_numpy == kernel.T).all()))
PY
"$folder/venv/bin/python" "$folder/check.py"
