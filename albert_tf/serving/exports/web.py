"""A page for browsers that works alone: one HTML file with the model, its vocabulary and an engine."""

from albert_tf.core import files
from albert_tf.model.head_names import needs_pooler
from albert_tf.serving.exports.form import INT4, Form, Order, check_has_pooler
from albert_tf.serving.page import engine


def _write(order: Order) -> None:
    # These need the package onnx.
    from albert_tf.serving import onnx_files, onnx_model
    from albert_tf.serving.finished_model import predictor_class_of
    from albert_tf.serving.page import offline

    weights = order.weights
    if needs_pooler(weights.model_class, weights.config):
        check_has_pooler(order)
    assert order.tokenizer
    contents = onnx_files.convert(weights, order.missing, order.quantization, order.block_size)
    model = onnx_model.OnnxModel(contents, weights.config, weights.model_class)
    predictor = predictor_class_of(weights)(
        model,
        order.tokenizer,
        order.task,
        batch_size=1,
        untrained=order.missing,
        compute=model,
    )
    content = offline.offline_page(
        predictor,
        contents,
        engine.engine_files(order.web_engine),
        name=order.name,
        source=weights.source,
    )
    files.write_bytes(order.path, content)
    print(f"{order.path}: {weights.model_class}, {len(content):,} bytes")


WEB = Form(
    name="web",
    title="page",
    description="a page that works alone",
    file="page.html",
    write=_write,
    quantizations=("none", "int8", "int8_rows", "int8_weights", INT4),
    default_quantization=INT4,
    packages=("onnx",),
    reads_windows=True,
    takes_texts=True,
    is_one_file=True,
    check=engine.engine_files,
)
