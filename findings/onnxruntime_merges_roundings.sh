#!/usr/bin/env bash
# onnxruntime 1.32.0, CPU: two roundings in succession (QuantizeLinear, DequantizeLinear, twice) become one finer rounding.
#
# Where a tensor is quantized with one scale and then with another, the optimizer drops the inner pair and computes a new
# scale for one rounding within the range that both have in common. That is no optimization that keeps the numbers.
# Expected: at every level of optimization, what the nodes say: 0.6 at scale 1 is 1, and 1 at scale 0.01 is 1.
# Seen: 0.598 with the default level, 1.0 without optimizations and by the reference evaluator of onnx.
#
# Who meets it: anyone who measures a quantized model, or trains it with such roundings, elsewhere than it runs: the
# losses of accuracy that the graph states are not those of the session. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cat >"$folder/check.py" <<'PY'
import sys

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, reference

print("onnxruntime", onnxruntime.__version__, "| onnx", onnx.__version__)
nodes, constants, tensor = [], [], "x"
for number, (scale, zero_point) in enumerate([(1.0, 0), (0.01, 128)]):
    parameters = [f"scale{number}", f"zero{number}"]
    constants.append(helper.make_tensor(parameters[0], TensorProto.FLOAT, [], [scale]))
    constants.append(helper.make_tensor(parameters[1], TensorProto.UINT8, [], [zero_point]))
    nodes.append(helper.make_node("QuantizeLinear", [tensor, *parameters], [f"quantized{number}"]))
    tensor = f"rounded{number}"
    nodes.append(helper.make_node("DequantizeLinear", [f"quantized{number}", *parameters], [tensor]))
graph = helper.make_graph(
    nodes,
    "roundings",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
    [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, ["n"])],
    constants,
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
onnx.checker.check_model(model)
x = numpy.array([0.2, 0.4, 0.6, 0.9], numpy.float32)


def computed(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


levels = onnxruntime.GraphOptimizationLevel
default, plain = computed(levels.ORT_ENABLE_ALL), computed(levels.ORT_DISABLE_ALL)
expected = reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
print("x", x.tolist(), "| reference", expected.tolist())
print("without optimizations", plain.tolist(), "| with them", default.round(4).tolist())
sys.exit(not (numpy.array_equal(plain, expected) and abs(default - x).max() < 0.01))
PY
"$folder/venv/bin/python" "$folder/check.py"
