"""ONNX files, which take ids, and which `load_predictor` computes without TensorFlow."""

from albert_tf.model.head_names import needs_pooler
from albert_tf.serving import onnx_model
from albert_tf.serving.exports.form import INT4, Form, Order, check_has_pooler, write_files


def _write(order: Order) -> None:
    from albert_tf.serving import onnx_files  # needs the package onnx

    if needs_pooler(order.weights.model_class, order.weights.config):
        check_has_pooler(order)
    contents = onnx_files.convert(
        order.weights, order.missing, order.quantization, order.block_size
    )
    write_files(order, contents)


ONNX = Form(
    name="onnx",
    title="ONNX",
    description="an ONNX file that takes ids",
    file=onnx_model.MODEL,
    write=_write,
    quantizations=("none", "int8", "int8_rows", "int8_weights", INT4),
    packages=("onnx", "onnxruntime"),
    reads_windows=True,
    recognizes=onnx_model.is_export,
    read=onnx_model.read,
    load=onnx_model.load,
)
