"""Signatures of exported models: named functions of plain tensors with a batch dimension, for each class of model.

Texts are strings; `tokens`, `mlm`, `sop` and `tokenization_info` are those of the original's hub modules
(export_to_tfhub.py). docs/guides/export.md lists all of them. Shape legend: `model/encoder.py`.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.model import heads
from albert_tf.model.heads import ModelWithHead
from albert_tf.serving.in_graph.text import GraphText
from albert_tf.serving.parts import TOKENS, parts_without
from albert_tf.tasks.classification import multi_label
from albert_tf.text.tokenizer import Tokenizer

DEFAULT = "serving_default"  # the signature that a server uses if none is named

Signatures = dict[str, Callable]

# Their texts are prepared in Python (`load_predictor`), as are their answers.
_OF_IDS = (
    heads.AlbertForSpan,
    heads.AlbertForSpanOrNone,
    heads.AlbertForTokenClassification,
    heads.AlbertForMultipleChoice,
)


def servable(
    model: ModelWithHead,
    tokenizer: Tokenizer,
    task: Mapping[str, Any],
    *,
    missing: Collection[str] = (),
    make_signatures: Callable | None = None,
) -> tuple[tf.train.Checkpoint, Signatures]:
    """The object that `tf.saved_model.save` needs for a model, without Keras, and its signatures.

    The object is a reusable SavedModel as TF-Hub defines it: when it is loaded, it can be called with a dictionary of
    ids and `training`, and has `trainable_variables`, and `weights` by their released names. Signatures that need
    variables without trained values (`missing`, released names) are left out. `make_signatures` is that of the
    `TaskDefinition`; None makes the signatures of the model's class.
    """
    parts = parts_without(missing)
    if make_signatures:
        text, of_class = make_signatures(model, tokenizer, task)
    elif isinstance(model, _OF_IDS):
        text = None
        of_class = {DEFAULT: _of_ids(model)}
    else:
        text = GraphText(tokenizer, task["max_seq_length"])
        match model:
            case heads.AlbertForPreTraining():
                of_class = _pretraining(model, text, parts)
            case heads.AlbertForSequenceClassification():
                of_class = _classify(model, text)
            case heads.AlbertForEmbedding():
                of_class = _embed(model, text)
            case _:
                reason = "has no signatures; its task must make them (TaskDefinition.signatures)"
                raise UserError(f"an {type(model).__name__} {reason}")

    root = tf.train.Checkpoint()
    root.weights = model.named_variables()
    root.variables = list(root.weights.values())
    root.trainable_variables = list(root.variables)
    root.regularization_losses = []
    if text:
        root.text = text  # contains the vocabulary
    root.__call__ = _callable(model, parts)
    return root, {"tokens": _tokens(model, parts), **of_class}


def _signature(*specs: tf.TensorSpec) -> Callable:
    """Decorates graph functions; without autograph, which they do not need."""
    return tf.function(input_signature=specs, autograph=False)


def _strings(*names: str) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([None], tf.string, name=name) for name in names]


def _ints(*names: str, rank: int = 2) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([None] * rank, tf.int32, name=name) for name in names]


def _encoded(model: ModelWithHead, parts: set[str], *ids: tf.Tensor) -> dict[str, tf.Tensor]:
    outputs = model.encoder(dict(zip(TOKENS, ids, strict=True)))
    return _embeddings(outputs, parts)


def _embeddings(outputs: Mapping[str, tf.Tensor], parts: set[str]) -> dict[str, tf.Tensor]:
    names = ("sequence_output", "pooled_output") if "pooler" in parts else ("sequence_output",)
    return {name: outputs[name] for name in names}


def _tokens(model: ModelWithHead, parts: set[str]) -> Callable:
    @_signature(*_ints(*TOKENS))
    def tokens(input_ids, input_mask, segment_ids):
        return _encoded(model, parts, input_ids, input_mask, segment_ids)

    return tokens


def _inputs(model: ModelWithHead) -> list[tf.TensorSpec]:
    names = (*TOKENS, "p_mask") if isinstance(model, heads.AlbertForSpanOrNone) else TOKENS
    return _ints(*names, rank=3 if isinstance(model, heads.AlbertForMultipleChoice) else 2)


def _of_ids(model: ModelWithHead) -> Callable:
    """The outputs of a model's head."""
    specs = _inputs(model)

    @_signature(*specs)
    def outputs(*ids):
        names = [spec.name for spec in specs]
        features = dict(zip(names, ids, strict=True))
        return dict(model(features, training=False))

    return outputs


def _callable(model: ModelWithHead, parts: set[str]) -> Callable:
    """The model as a function of ids and `training`, with all its outputs; traced for both values of `training`."""
    unwanted = {"all_layers"}
    if "pooler" not in parts:
        unwanted.add("pooled_output")
    if "sop" not in parts:
        unwanted.add("sentence_order_logits")

    @tf.function(autograph=False)
    def call(inputs, training=False):
        outputs = dict(model(inputs, training=training))
        return {name: tensor for name, tensor in outputs.items() if name not in unwanted}

    for training in (False, True):
        specs = _inputs(model)
        if training and isinstance(model, heads.AlbertForSpanOrNone):
            specs += _ints("start_positions")
        call.get_concrete_function({spec.name: spec for spec in specs}, training=training)
    return call


def tokenization_info(vocabulary: tf.saved_model.Asset, do_lower_case: bool) -> Callable:
    """The signature of hub modules that describes how texts become ids: `vocab_file` and `do_lower_case`."""

    @_signature()
    def info():
        return {
            "vocab_file": tf.identity(vocabulary.asset_path),
            "do_lower_case": tf.constant(do_lower_case),
        }

    return info


def _pretraining(model: heads.AlbertForPreTraining, text: GraphText, parts: set[str]) -> Signatures:
    is_nsp = model.config.sentence_task == "nsp"

    @_signature(*_strings("texts"))
    def embed(texts):
        features = text.pairs(texts, tf.zeros_like(texts))
        outputs = _embeddings(model.encoder(features), parts)
        # [2, 8, 768] x [2, 8, 1] -> [2, 768]: the mean of the tokens of each text
        mask_BL1 = tf.cast(features["input_mask"], tf.float32)[:, :, None]
        total_BD = tf.reduce_sum(outputs.pop("sequence_output") * mask_BL1, axis=1)
        return {**outputs, "mean_embedding": total_BD / tf.reduce_sum(mask_BL1, axis=1)}

    @_signature(*_ints(*TOKENS, "mlm_positions"))
    def mlm(input_ids, input_mask, segment_ids, mlm_positions):
        outputs = _encoded(model, parts, input_ids, input_mask, segment_ids)
        # [2, 8, 768] at [2, 3] -> [2, 3, 768], whose logits are [2, 3, 30000]
        masked_BPD = tf.gather(outputs["sequence_output"], mlm_positions, batch_dims=1)
        table_VE = model.encoder.embeddings.word_embeddings
        return {**outputs, "mlm_logits": model.masked_lm_head(masked_BPD, table_VE)}

    @_signature(*_ints(*TOKENS))
    def sop(input_ids, input_mask, segment_ids):
        outputs = _encoded(model, parts, input_ids, input_mask, segment_ids)
        logits = model.sentence_order_head(outputs["pooled_output"])
        return {**outputs, "sop_logits": logits, "sop_log_probs": tf.nn.log_softmax(logits)}

    @_signature(*_strings("text_a", "text_b"))
    def sentence_order(text_a, text_b):
        probabilities = tf.nn.softmax(model(text.pairs(text_a, text_b))["sentence_order_logits"])
        names = ("is_next", "not_next") if is_nsp else ("in_order", "swapped")
        return dict(zip(names, tf.unstack(probabilities, axis=1), strict=True))

    signatures = {DEFAULT: embed, "embed": embed}
    if "mlm" in parts:
        signatures["mlm"] = mlm
    if "sop" in parts:
        signatures |= {"sop": sop, "sentence_order": sentence_order}
    return signatures


def _embed(model: heads.AlbertForEmbedding, text: GraphText) -> Signatures:
    @_signature(*_strings("texts"))
    def embed(texts):
        return model(text.pairs(texts, tf.zeros_like(texts)))

    @_signature(*_ints(*TOKENS))
    def embed_tokens(input_ids, input_mask, segment_ids):
        ids = (input_ids, input_mask, segment_ids)
        return model(dict(zip(TOKENS, ids, strict=True)))

    return {DEFAULT: embed, "embed": embed, "embed_tokens": embed_tokens}


def _classify(model: heads.AlbertForSequenceClassification, text: GraphText) -> Signatures:
    labels = model.config.labels

    def answers(features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # [2, labels], of which a multi-label model has any number of names, others one, [2]
        logits = model(features)["logits"]
        if model.config.is_multi_label:
            probabilities = tf.sigmoid(logits)
            names = tf.where(probabilities >= multi_label.THRESHOLD, tf.constant(labels), "")
            return {"logits": logits, "probabilities": probabilities, "labels": names}
        if len(labels) == 1:
            score = logits[:, 0]
            return {"score": tf.sigmoid(score) if model.config.score_is_probability else score}
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "label": tf.gather(tf.constant(labels), tf.argmax(logits, axis=-1)),
        }

    @_signature(*_strings("text_a", "text_b"))
    def classify_pairs(text_a, text_b):
        return answers(text.pairs(text_a, text_b))

    @_signature(*_strings("texts"))
    def classify(texts):
        return classify_pairs(texts, tf.zeros_like(texts))

    @_signature(*_ints(*TOKENS))
    def classify_tokens(input_ids, input_mask, segment_ids):
        ids = (input_ids, input_mask, segment_ids)
        return answers(dict(zip(TOKENS, ids, strict=True)))

    return {DEFAULT: classify_pairs, "classify": classify, "classify_tokens": classify_tokens}
