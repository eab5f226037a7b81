#!/usr/bin/env bash
# onnx 1.23.2: the reference evaluator's LpNormalization with p=1 divides by the sum of the numbers, not of their sizes.
#
# It raises the numbers to the power p without taking their absolute values, which only shows for odd p. The operator is
# defined by the Lp norm, and onnxruntime 1.32.0 computes that.
# Expected: [3, -4] becomes [3/7, -4/7]. Seen: [-3, 4], seven times as large and with the other sign; with p=2, all is
# right, and so are positive numbers with p=1.
#
# Who meets it: anyone who takes the evaluator that comes with the standard as the truth in tests of a converter or an
# engine. Exits with 1 if the behavior changes.
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

print("onnx", onnx.__version__, "| onnxruntime", onnxruntime.__version__)
x = numpy.array([[3, -4]], numpy.float32)
seen = {}
for p in (1, 2):
    graph = helper.make_graph(
        [helper.make_node("LpNormalization", ["x"], ["y"], axis=-1, p=p)],
        "norm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "numbers"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "numbers"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    engine = session.run(None, {"x": x})[0].round(4).tolist()
    evaluator = reference.ReferenceEvaluator(model).run(None, {"x": x})[0].round(4).tolist()
    print(f"p={p}: onnxruntime", engine, "| reference evaluator", evaluator)
    seen[p] = numpy.allclose(engine, evaluator), evaluator
sys.exit(not (seen[2][0] and seen[1] == (False, [[-3.0, 4.0]])))
PY
"$folder/venv/bin/python" "$folder/check.py"
