#!/usr/bin/env bash
# onnxruntime 1.32.0: with quantize_dynamic, a row's product depends on the other rows of the batch.
#
# Activations are rounded to 256 steps between the smallest and the largest number of the whole tensor, not of a row or
# a text. Expected: a text has the same vector alone and in a batch, up to the order of sums, as before quantization.
# Seen: a row alone has a cosine over 0.9999 with the exact product, as beside itself; beside a row in which one number
# is 60, 0.9977. Padding counts as such a row, too.
#
# Who meets it: anyone who embeds texts in batches with an int8 model: the vector in the index and that of the same text
# as a query differ, by what else was in the batch. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cat >"$folder/check.py" <<'PY'
import logging
import sys

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

logging.disable()  # advice on preparing the model
folder = sys.argv[1]
print("onnxruntime", onnxruntime.__version__, "| onnx", onnx.__version__)
rng = numpy.random.default_rng(0)
kernel = (rng.standard_normal((64, 64)) / 8).astype(numpy.float32)
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "kernel"], ["y"])],
    "product",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 64])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 64])],
    [numpy_helper.from_array(kernel, "kernel")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
onnx.save(model, f"{folder}/model.onnx")
quantize_dynamic(f"{folder}/model.onnx", f"{folder}/int8.onnx", weight_type=QuantType.QInt8)
session = onnxruntime.InferenceSession(f"{folder}/int8.onnx", providers=["CPUExecutionProvider"])

row = rng.standard_normal((1, 64)).astype(numpy.float32)
large = row.copy()
large[0, 0] = 60
exact = (row @ kernel)[0]
cosines = {}
for name, batch in {"alone": row, "beside itself": [*row, *row], "beside a large number": [*row, *large]}.items():
    y = session.run(None, {"x": numpy.array(batch, numpy.float32)})[0][0]
    cosines[name] = float(y @ exact / numpy.linalg.norm(y) / numpy.linalg.norm(exact))
    print(f"cosine with the exact product, {name}: {cosines[name]:.4f}")
alone, same, other = cosines.values()
sys.exit(not (alone > 0.9999 and abs(alone - same) < 1e-6 and other < 0.999))
PY
"$folder/venv/bin/python" "$folder/check.py" "$folder"
