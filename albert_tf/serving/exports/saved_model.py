"""SavedModels, which take strings, in the layout of TensorFlow Serving; `formats/saved_model.py` reads them."""

import os
import tempfile

from albert_tf.core import files
from albert_tf.serving.exports.form import Form, Order, files_beside
from albert_tf.serving.finished_model import definition_of


def _write(order: Order) -> None:
    import tensorflow as tf

    from albert_tf.serving import signatures

    tokenizer = order.tokenizer
    assert tokenizer
    root, functions = signatures.servable(
        order.model,
        tokenizer,
        order.task,
        missing=order.missing,
        make_signatures=definition_of(order.weights).signatures,
    )
    parent, version = os.path.split(order.path)
    with (
        files.errors_named(order.path, "written"),
        files.staged(parent) as staging,
        tempfile.TemporaryDirectory() as assets,
    ):
        files.write_files(assets, files_beside(order, dtype=order.dtype))
        root.assets = {
            name: tf.saved_model.Asset(os.path.join(assets, name)) for name in os.listdir(assets)
        }
        vocabulary = root.assets[tokenizer.file_name]
        functions["tokenization_info"] = signatures.tokenization_info(
            vocabulary, tokenizer.do_lower_case
        )
        # TensorFlow cannot save the gradients of shared weights in bfloat16; such an export cannot be fine-tuned.
        has_gradients = order.dtype == "float32"
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=has_gradients)
        folder = os.path.join(staging, version)
        tf.saved_model.save(root, folder, signatures=functions, options=options)
    names = ", ".join(sorted(functions))
    print(f"{order.path}: {order.weights.model_class}, signatures {names}")


SAVED_MODEL = Form(
    name="saved_model",
    title="SavedModel",
    description="a SavedModel that takes strings",
    file="",
    write=_write,
    takes_texts=True,
)
