#!/usr/bin/env bash
# numpy 2.4.6 with ml_dtypes 0.6.0: `numpy.sort` leaves bfloat16 numbers unsorted if one of them is NaN.
#
# For float16 to float64, NumPy orders NaN after all numbers. The comparison of bfloat16 treats NaN as neither less nor
# greater, so the numbers on its two sides never meet; sort, argsort and partition give what comes of it, silently.
# Expected: [3, NaN, 1] is sorted to [1, 3, NaN] in every floating-point type.
# Seen, bfloat16: [3, NaN, 1]. The three best of eight scores, two of which are NaN, lack the second best.
#
# Who meets it: anyone who ranks scores of a model in bfloat16, where a masked or empty row gives NaN. Exits with 1 if
# the behavior changes.
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
nan = float("nan")
scores = [0.25, 0.875, nan, 0.125, 0.75, 0.5, nan, 0.375]
found = {}
for dtype in (numpy.float16, ml_dtypes.bfloat16):
    name = dtype.__name__
    in_order = numpy.sort(numpy.array([3, nan, 1], dtype)).astype(float).tolist()
    best = numpy.argsort(-numpy.array(scores, dtype), kind="stable")[:3].tolist()
    found[name] = (str(in_order), best)
    print(name, "sorted", in_order, "| places of the three best", best)
right = found["float16"] == ("[1.0, 3.0, nan]", [1, 4, 5])
sys.exit(not (right and found["bfloat16"][0] == "[3.0, nan, 1.0]" and found["bfloat16"][1] != [1, 4, 5]))
PY
"$folder/venv/bin/python" "$folder/check.py"
