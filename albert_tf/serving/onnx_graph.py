"""An ONNX graph that is built operation by operation, with weights in float32.

`onnx_files.py` builds the graphs of models; `onnx_quantized.py` has graphs whose weights are smaller. Shape legend:
`model/encoder.py`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from albert_tf.core.errors import UserError
from albert_tf.formats.weights import Weights
from albert_tf.model.activations import ACTIVATIONS

ENCODER = "bert/encoder/"  # the beginning of the names of its weights
OPSET = 20  # the first one with Gelu
IR_VERSION = 9  # of the format, from the time of that opset


class Graph:
    """Nodes, weights and outputs of a graph that is being built; values are identified by name.

    A weight is named as in the released checkpoints, and a layer by the beginning of its weights' names.
    """

    # Domains of operations besides those of ONNX itself, and their versions.
    domains: Mapping[str, int] = {}

    def __init__(self, weights: Weights, block_size: int):
        """`block_size` is for the graphs of `onnx_quantized.py` whose weights have scales by blocks."""
        self.config = weights.config
        self.block_size = block_size
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._outputs: list[onnx.ValueInfoProto] = []
        self._renamed: dict[str, str] = {}  # values that are outputs

    def op(self, operation: str, *inputs: str, domain: str = "", **attributes) -> str:
        """The output of a new node."""
        name = f"{operation}_{len(self._nodes)}"
        node = helper.make_node(operation, inputs, [name], name=name, domain=domain, **attributes)
        self._nodes.append(node)
        return name

    def several(self, number: int, operation: str, *inputs: str, **attributes) -> list[str]:
        """The outputs of a new node that has several."""
        name = f"{operation}_{len(self._nodes)}"
        outputs = [f"{name}_{index}" for index in range(number)]
        self._nodes.append(helper.make_node(operation, inputs, outputs, name=name, **attributes))
        return outputs

    def array(self, name: str) -> np.ndarray:
        """The values of a weight, float32."""
        return np.asarray(self._weights.arrays[name], np.float32)

    def weight(self, name: str) -> str:
        """The value of a weight, float32, which is stored at its first use only."""
        if not self.has_constant(name):
            self.constant(name, self.array(name))
        return name

    def rows(self, table: str, ids: str) -> str:
        """Rows of a table, float32."""
        return self.op("Gather", self.weight(table), ids)

    def product(self, value: str, kernel: str) -> str:
        """[..., I] x [I, O] -> [..., O]."""
        return self.op("MatMul", value, self.weight(kernel))

    def products_with_rows(self, value_XE: str, table: str, bias: str) -> str:
        """[X, E], table [V, E], bias [V] -> [X, V]."""
        # Unlike MatMul, Gemm accepts the table without a transposition, but it works on matrices only.
        return self.op("Gemm", value_XE, self.weight(table), self.weight(bias), transB=1)

    def number(self, value: float) -> str:
        """A constant, float32."""
        return self.constant(f"number_{value:g}", np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """A constant vector, int64."""
        return self.constant("integers_" + "_".join(map(str, values)), np.array(values, np.int64))

    def has_constant(self, name: str) -> bool:
        """Whether a constant is stored already."""
        return name in self._constants

    def constant(self, name: str, array: np.ndarray) -> str:
        """The name of a constant, which is stored at its first use only."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(array, name)
        return name

    def output(self, name: str, value: str, *dimensions: str | int, is_float: bool = True) -> None:
        """Makes a value an output of this name, float32 or int64."""
        self._renamed[value] = name
        kind = TensorProto.FLOAT if is_float else TensorProto.INT64
        self._outputs.append(helper.make_tensor_value_info(name, kind, dimensions))

    def content(self, inputs: Mapping[str, Sequence[str]]) -> bytes:
        """The file of this graph, which ONNX has checked."""
        model = self.model(inputs)
        onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()

    def model(self, inputs: Mapping[str, Sequence[str]]) -> onnx.ModelProto:
        """This graph as a model of ONNX."""
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [self._renamed.get(name, name) for name in names]
        infos = [
            helper.make_tensor_value_info(name, TensorProto.INT64, dimensions)
            for name, dimensions in inputs.items()
        ]
        constants = list(self._constants.values())
        graph = helper.make_graph(self._nodes, "albert", infos, self._outputs, constants)
        versions = {"": OPSET, **self.domains}
        return helper.make_model(
            graph,
            producer_name="albert-tf",
            opset_imports=[helper.make_opsetid(*version) for version in versions.items()],
            ir_version=IR_VERSION,
        )

    def dense(self, layer: str, value: str) -> str:
        """[..., I] -> [..., O]; the layer without its activation."""
        product = self.product(value, f"{layer}/kernel")
        return self.op("Add", product, self.weight(f"{layer}/bias"))

    def layer_norm(self, layer: str, value: str, epsilon: float | None = None) -> str:
        """LayerNorm over the last axis, by default with the epsilon of the configuration."""
        gamma = self.weight(f"{layer}/gamma")
        beta = self.weight(f"{layer}/beta")
        if epsilon is None:
            epsilon = self.config.layer_norm_eps
        return self.op("LayerNormalization", value, gamma, beta, epsilon=epsilon)

    def activation(self, value: str) -> str:
        """The activation of the configuration."""
        name = self.config.hidden_act
        operation = ACTIVATIONS[name].onnx
        if not operation:
            reason = f"hidden_act is {name}, which has no operation of ONNX here"
            raise UserError(f"--format=onnx: {reason}; export --format=saved_model")
        return self.op(operation[0], value, **operation[1])

    def scores(self, head: str, value: str) -> str:
        """[..., D] -> [..., C]; the head is the beginning of its weights' names, such as "cls/squad/"."""
        weights_DC = self.op("Transpose", self.weight(f"{head}output_weights"), perm=[1, 0])
        products = self.op("MatMul", value, weights_DC)
        return self.op("Add", products, self.weight(f"{head}output_bias"))

    def without_last(self, value: str) -> str:
        """[..., 1] -> [...]."""
        return self.op("Squeeze", value, self.integers(-1))

    def first(self, value_BLD: str) -> str:
        """The vector of [CLS], [B, D]."""
        index = self.constant("first", np.array(0, np.int64))
        return self.op("Gather", value_BLD, index, axis=1)
