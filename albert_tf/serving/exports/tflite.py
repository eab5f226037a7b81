"""TFLite files for phones, which take ids."""

import os

from albert_tf.core import files
from albert_tf.serving.exports.form import Form, Order, check_has_pooler, write_files


def _write(order: Order) -> None:
    from albert_tf.serving import tflite  # needs TensorFlow

    if order.model.uses_pooler:
        check_has_pooler(order)
    length = order.task["max_seq_length"]
    # TensorFlow's converter writes temporary files.
    with files.errors_named(order.path, "written"):
        content = tflite.convert(order.model, length, order.quantization)
    write_files(order, {os.path.basename(order.path): content})


TFLITE = Form(
    name="tflite",
    title="TFLite",
    description="a TFLite file that takes ids",
    file="model.tflite",
    write=_write,
    quantizations=("none", "int8"),
    reads_batches=False,
)
