"""A folder in which the JavaScript library @huggingface/transformers finds a model, in three sizes."""

import json
import os
from collections.abc import Mapping

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.model.head_names import (
    ARCHITECTURES,
    EMBEDDING,
    PRETRAINING,
    SEQUENCE_CLASSIFICATION,
    SPAN,
    TOKEN_CLASSIFICATION,
    needs_pooler,
    reads_vectors,
)
from albert_tf.serving.exports.form import INT4, Form, Order, check_has_pooler
from albert_tf.serving.onnx_model import MASKED_LM, MODEL

# The file that the library loads for its option `dtype` -> a quantization of ours.
_FILES: Mapping[str, str] = {
    "onnx/model.onnx": "none",  # fp32
    "onnx/model_quantized.onnx": "int8_rows",  # q8, which it takes in browsers if nobody says otherwise
    "onnx/model_q4.onnx": INT4,  # q4
}
_CLASSES = (PRETRAINING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION, SPAN, EMBEDDING)


def _write(order: Order) -> None:
    # These need TensorFlow.
    from albert_tf.formats import bert
    from albert_tf.formats.hugging_face.write import config_of, left_out_of
    from albert_tf.formats.tokenizer_files import vocabulary_files
    from albert_tf.serving import onnx_files

    weights = order.weights
    if weights.model_class not in _CLASSES:
        expected = f"expected one of {', '.join(_CLASSES)}"
        raise UserError(f"--format=transformers_js: {weights.model_class}, {expected}")
    if needs_pooler(weights.model_class, weights.config):
        check_has_pooler(order)

    folder = os.path.dirname(os.path.dirname(order.path))
    tokenizer = order.tokenizer
    assert tokenizer
    contents = vocabulary_files(tokenizer, order.task["max_seq_length"])
    if "tokenizer.json" not in contents:
        reason = "the library reads only WordPiece and SentencePiece models of the kind unigram"
        raise UserError(f"--format=transformers_js: {weights.source}: {reason}")

    fills_masks = False
    for name, quantization in _FILES.items():
        of_model = onnx_files.convert(
            order.weights, order.missing, quantization, order.block_size, has_hidden_states=True
        )
        fills_masks = MASKED_LM in of_model
        contents[name] = of_model[MASKED_LM if fills_masks else MODEL]

    left_out = left_out_of(order.model, order.missing)
    config = config_of(order.model, order.task, tokenizer, left_out)
    if weights.model_class == PRETRAINING:
        head = "ForMaskedLM" if fills_masks else "Model"
        config["architectures"] = [
            name.replace("ForPreTraining", head) for name in config["architectures"]
        ]
    if reads_vectors(weights.model_class, weights.config):
        # The graph makes the vector, so that here the class says no more than that there are logits.
        architecture = ARCHITECTURES[weights.model_class]
        is_bert = config["model_type"] == bert.MODEL_TYPE
        config["architectures"] = [
            architecture.replace("Albert", "Bert") if is_bert else architecture
        ]
    if weights.model_class == TOKEN_CLASSIFICATION:
        # The library has no tagger for an ALBERT; that for a BERT runs the same file.
        config |= {"model_type": "bert", "architectures": ["BertForTokenClassification"]}
    contents["config.json"] = json.dumps(config, indent=2).encode() + b"\n"

    with files.errors_named(folder, "written"):
        files.write_files(folder, contents)
    sizes = ", ".join(f"{name} {len(contents[name]):,} bytes" for name in _FILES)
    print(f"{folder}: {weights.model_class}, {sizes}")


TRANSFORMERS_JS = Form(
    name="transformers_js",
    title="folder for @huggingface/transformers",
    description="a folder for the JavaScript library @huggingface/transformers, with ONNX files in three sizes",
    file="onnx/model.onnx",
    write=_write,
    has_every_size=True,
    packages=("onnx",),
    takes_texts=True,
)
