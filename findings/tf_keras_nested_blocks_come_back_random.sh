#!/usr/bin/env bash
# tf_keras 2.21.0: a layer whose blocks stand in a list of lists is saved without their weights, and loaded with random ones.
#
# model.save("x.keras") and save_weights("x.weights.h5") visit the layers in a layer's lists, but not in lists within
# lists, and neither write nor miss anything there. The model has all its variables, and they are trained.
# Expected: the weights come back, or an error, as for a layer that is missing in the file.
# Seen: of a layer with [[Dense, Dense], [Dense, Dense]], no message, and four new random kernels after load_model. With
# the same four in one list, or in x.h5, they come back. keras 3.15.1 saves all of them; earlier ones had the same fault.
#
# Who meets it: anyone who still needs Keras 2 (Model Garden, tensorflow-hub) and writes groups of blocks as ALBERT has
# them, or experts by layer: evaluation before saving is right, and the model is gone. Exits with 1 if it changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet tensorflow-cpu==2.21.0 keras==3.15.1 numpy==2.4.6
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps tf_keras==2.21.0
cat >"$folder/check.py" <<'PY'
import os
import sys
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy
import tf_keras

print("tf_keras", tf_keras.__version__, "| keras", keras.__version__)
folder = sys.argv[1]
inputs = numpy.ones([1, 3], numpy.float32)


def classes(library):
    """Layers of four dense blocks, in one list and in a list of lists."""

    class Flat(library.layers.Layer):
        def __init__(self, **options):
            super().__init__(**options)
            self.blocks = [library.layers.Dense(3) for _ in range(4)]

        def build(self, shape):
            for block in self.blocks:
                block.build(shape)
            self.built = True

        def call(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    class Nested(library.layers.Layer):
        def __init__(self, **options):
            super().__init__(**options)
            self.groups = [[library.layers.Dense(3) for _ in range(2)] for _ in range(2)]

        def build(self, shape):
            for group in self.groups:
                for block in group:
                    block.build(shape)
            self.built = True

        def call(self, x):
            for group in self.groups:
                for block in group:
                    x = block(x)
            return x

    return Flat, Nested


seen = {}
for library in (tf_keras, keras):
    for layer_class in classes(library):
        model = library.Sequential([library.layers.Input((3,)), layer_class()])
        expected = numpy.asarray(model(inputs))
        with warnings.catch_warnings(record=True) as messages:
            model.save(f"{folder}/x.keras")
            objects = {layer_class.__name__: layer_class}
            loaded = library.models.load_model(f"{folder}/x.keras", custom_objects=objects)
            fresh = library.models.clone_model(model)
            model.save_weights(f"{folder}/x.weights.h5")
            fresh.load_weights(f"{folder}/x.weights.h5")
        same = [numpy.array_equal(numpy.asarray(copy(inputs)), expected) for copy in (loaded, fresh)]
        about = [str(message.message) for message in messages if "compile" not in str(message.message)]
        key = library.__name__, layer_class.__name__
        seen[key] = same
        print(*key, "|", len(model.weights), "variables | same after x.keras", same[0], "and x.weights.h5", same[1], about)
right = [True, True]
expected = [right, [False, False], right, right]
sys.exit(list(seen.values()) != expected)
PY
"$folder/venv/bin/python" "$folder/check.py" "$folder"
