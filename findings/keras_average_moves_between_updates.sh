#!/usr/bin/env bash
# keras 3.15.1: with gradient_accumulation_steps, the moving average of the weights moves at every small batch.
#
# Gradients of N batches are collected, and the weights move once in N. The schedule and bias correction count updates,
# but use_ema averages at all N, also where nothing has moved: ema_momentum is in truth ema_momentum to the power of N.
# Expected: one large batch, or its four quarters, leave the same weights. Seen: ten updates of SGD by 1, momentum .9:
# the average that training ends with is 4.487 for whole batches and 7.442 for quarters; the raw weight is 10 in both.
#
# Who meets it: anyone who trains with averages and divides batches because memory is short: the model that is kept has
# a shorter memory than its setting says, and another score. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
cat >"$folder/check.py" <<'PY'
import os
import sys

os.environ["KERAS_BACKEND"] = "jax"
import jax
import keras

print("keras", keras.__version__, "| jax", jax.__version__)


def trained(steps):
    """The weight after ten updates, and the average that replaces it; every small batch has the gradient -1."""
    optimizer = keras.optimizers.SGD(
        1.0, use_ema=True, ema_momentum=0.9, gradient_accumulation_steps=steps
    )
    weight = keras.Variable([0.0])
    optimizer.build([weight])
    for _ in range(10 * (steps or 1)):
        optimizer.apply([keras.ops.array([-1.0])], [weight])
    raw = float(keras.ops.convert_to_numpy(weight)[0])
    optimizer.finalize_variable_values([weight])  # as fit does at its end
    return raw, round(float(keras.ops.convert_to_numpy(weight)[0]), 3)


whole, quarters = trained(None), trained(4)
print("weight, average: whole batches", whole, "| quarters", quarters)
sys.exit(not (whole == (10.0, 4.487) and quarters == (10.0, 7.442)))
PY
"$folder/venv/bin/python" "$folder/check.py"
