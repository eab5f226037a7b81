#!/usr/bin/env bash
# onnxruntime 1.32.0, CPU: ReduceMax and ArgMax overlook NaN, except where it is the first number.
#
# NumPy, and the reference evaluator of onnx with it, give NaN for the maximum of numbers with NaN, and its place for
# ArgMax. Sums, Softmax and the elementwise Max of the same library give NaN, too.
# Expected: the result does not depend on the place of NaN; by the reference, NaN and its place.
# Seen: [1, NaN, 2] has the maximum 2 at place 2; [NaN, 1, 2] has the maximum NaN at place 0.
#
# Who meets it: anyone whose exported classifier ends in ArgMax or ReduceMax: logits that overflowed to NaN still give a
# label and a score, or not, by which class has the NaN. Exits with 1 if the behavior changes.
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
nodes = [
    helper.make_node("ReduceMax", ["x", "axes"], ["score"], keepdims=0),
    helper.make_node("ArgMax", ["x"], ["place"], axis=1, keepdims=0),
]
graph = helper.make_graph(
    nodes,
    "best",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "classes"])],
    [
        helper.make_tensor_value_info("score", TensorProto.FLOAT, ["rows"]),
        helper.make_tensor_value_info("place", TensorProto.INT64, ["rows"]),
    ],
    [helper.make_tensor("axes", TensorProto.INT64, [1], [1])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
onnx.checker.check_model(model)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

nan = float("nan")
seen = []
for row in ([nan, 1, 2], [1, nan, 2], [1, 2, nan]):
    x = numpy.array([row], numpy.float32)
    score, place = (float(output[0]) for output in session.run(None, {"x": x}))
    theirs = [float(output[0]) for output in reference.ReferenceEvaluator(model).run(None, {"x": x})]
    print(row, "| onnxruntime", [score, place], "| reference", theirs)
    seen.append((str(score), place))
sys.exit(seen != [("nan", 0), ("2.0", 2), ("2.0", 1)])
PY
"$folder/venv/bin/python" "$folder/check.py"
