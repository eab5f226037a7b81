#!/usr/bin/env bash
# tensorflow-cpu 2.21.0 (tf_keras 2.21.0, keras 3.15.1): a gradient clipped to norm 1 has norm 10, if a token is repeated.
#
# The gradient of an embedding table is a list of rows, one for each token of the batch, in which a token of n places has
# n rows. global_norm, clip_by_global_norm and global_clipnorm take the norm of that list, and the optimizer adds up the
# rows of a token afterwards. Rows of common tokens point in like directions, so that their sum is longer.
# Expected: after clip_by_global_norm(..., 1), the gradient that is applied has norm 1 at most, as a dense one has.
# Seen: 100 places of one token, each with the gradient 1: norm 10 instead of 100, and a step of 10 instead of 1.
#
# Who meets it: anyone who clips in text models: padding, [CLS] and "the" are hundreds of a batch. The same model moves
# further than in PyTorch, or than with a lookup by product. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet tensorflow-cpu==2.21.0 keras==3.15.1 numpy==2.4.6
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps tf_keras==2.21.0
cat >"$folder/check.py" <<'PY'
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import tensorflow
import tf_keras

print("tensorflow", tensorflow.__version__, "| tf_keras", tf_keras.__version__, "| keras", keras.__version__)
tokens = tensorflow.zeros([100], tensorflow.int32)


def gradient_of(table, lookup):
    with tensorflow.GradientTape() as tape:
        loss = tensorflow.reduce_sum(lookup(table))
    return tape.gradient(loss, table)


def by_rows(table):
    return tensorflow.gather(table, tokens)


def by_product(table):
    return tensorflow.one_hot(tokens, 5) @ table


seen = {}
for name, lookup in {"rows": by_rows, "product": by_product}.items():
    table = tensorflow.Variable(tensorflow.zeros([5, 1]))
    gradient = gradient_of(table, lookup)
    seen[name, "norm"] = float(tensorflow.linalg.global_norm([gradient]))
    clipped, _ = tensorflow.clip_by_global_norm([gradient], 1.0)
    tf_keras.optimizers.SGD(1.0).apply_gradients(zip(clipped, [table]))
    seen[name, "step after clip_by_global_norm"] = -float(table[0, 0])

    table = tensorflow.Variable(tensorflow.zeros([5, 1]))
    tf_keras.optimizers.SGD(1.0, global_clipnorm=1.0).apply_gradients([(gradient_of(table, lookup), table)])
    seen[name, "step of tf_keras"] = -float(table[0, 0])

    variable = keras.Variable(tensorflow.zeros([5, 1]))
    optimizer = keras.optimizers.SGD(1.0, global_clipnorm=1.0)
    optimizer.apply([gradient_of(variable.value, lookup)], [variable])
    seen[name, "step of keras"] = -float(variable.value[0, 0])
seen = {key: round(value, 3) for key, value in seen.items()}
for (name, what), value in seen.items():
    print("lookup by", name, "|", what, value)
sys.exit(list(seen.values()) != [10.0, 10.0, 10.0, 10.0, 100.0, 1.0, 1.0, 1.0])
PY
"$folder/venv/bin/python" "$folder/check.py"
