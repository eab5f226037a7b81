#!/usr/bin/env bash
# numpy 2.4.6 with ml_dtypes 0.6.0: the mean of bfloat16 numbers is far too small, while that of float16 is right.
#
# NumPy sums float16 in pairs, and its mean even in float32. A type of another package has neither: each addition is
# rounded to 8 bits, and the sum stops growing where the next number is less than half a step of it. `@` is right.
# Expected: the mean of 20,000 numbers between 0 and 1 is about 0.5 in both types; the mean of ones is 1.
# Seen, bfloat16: 0.0128; ones: 0.0128 for 20,000 and 0.2559 for 1,000. `mean(dtype="float32")` gives 0.5026.
#
# Who meets it: anyone who averages losses, embeddings or weights read in bfloat16 with NumPy. Exits with 1 if the
# behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet numpy==2.4.6 ml_dtypes==0.6.0
cat >"$folder/check.py" <<'PY'
import sys

import ml_dtypes
import numpy

print("numpy", numpy.__version__, "| ml_dtypes", ml_dtypes.__version__)
numbers = numpy.random.default_rng(0).random(20_000)
means = {}
for dtype in (numpy.float16, ml_dtypes.bfloat16):
    name = dtype.__name__
    means[name] = float(numbers.astype(dtype).mean())
    print(name, "mean", means[name], "| in float32", float(numbers.astype(dtype).mean(dtype=numpy.float32)))
of_ones = float(numpy.ones(1_000, ml_dtypes.bfloat16).mean())
print("mean of 1,000 ones in bfloat16", of_ones)
sys.exit(not (abs(means["float16"] - 0.5) < 0.01 and means["bfloat16"] < 0.1 and of_ones < 0.5))
PY
"$folder/venv/bin/python" "$folder/check.py"
