"""Early exit: an example leaves the encoder when several layers in a row gave the same answer.

Source: PABEE (arXiv 2006.04152), whose patience is one less: it counts the layers that agree with the one before.
Shape legend: `encoder.py`; R rows, one for each example, or one for each choice of an example.
"""

import dataclasses
from collections.abc import Callable, Mapping

import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.model.heads import ModelWithHead, flattened
from albert_tf.model.plain_ops import padding_mask


@dataclasses.dataclass(frozen=True)
class EarlyExit:
    """When an example leaves.

    Attributes:
      patience: the number of layers in a row that must give the same answer.
      tolerance: the largest difference between scores that count as the same.
      has_several: whether an example has any number of labels: those with positive logits.
    """

    patience: int
    tolerance: float = 0.1
    has_several: bool = False

    def is_same(self, before: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Whether logits [B, C] mean the same answers as those before, bool [B]."""
        if logits.shape[-1] == 1:
            return (tf.abs(logits - before) <= self.tolerance)[:, 0]
        if self.has_several:
            return tf.reduce_all((logits >= 0) == (before >= 0), axis=-1)
        return tf.argmax(logits, axis=-1) == tf.argmax(before, axis=-1)


def check_leaves_early(model_class: type[ModelWithHead], source: str) -> None:
    """Checks that a model has one answer for each example, which its head can give after any layer."""
    if not hasattr(model_class, "answer"):
        raise UserError(
            f"{source}: patience is for models that choose one answer to a text, and {model_class.__name__} does not;"
            " use num_hidden_layers"
        )


def outputs_with_patience(
    model: ModelWithHead, inputs: Mapping[str, tf.Tensor], early_exit: EarlyExit
) -> dict[str, tf.Tensor]:
    """The outputs of a model, where each example leaves early; the batch of the next layer has the others.

    Returns:
      `logits`, as those of the model, and `num_layers` int32 [B], after how many layers each example left.
    """
    encoder, last = model.encoder, model.config.num_hidden_layers - 1
    flat, _ = flattened(inputs)
    hidden_RLD = tf.cast(
        encoder.embedded(flat), tf.float32
    )  # as layers return it in every precision
    mask_RL = flat.get("input_mask", tf.ones_like(flat["input_ids"]))
    apply_layer = _layer_function(model)
    num_examples = tf.shape(inputs["input_ids"])[0]
    rows = tf.shape(mask_RL)[0] // tf.maximum(num_examples, 1)

    def answers(first_RD):
        shape = [-1, *([rows] if inputs["input_ids"].shape.rank == 3 else []), first_RD.shape[-1]]
        return model.answer(tf.reshape(encoder.pooled(first_RD), shape))["logits"]

    def body(index, hidden_RLD, mask_RL, examples, streaks, before, logits, num_layers):
        hidden_RLD = apply_layer(index, hidden_RLD, padding_mask(mask_RL))
        now = answers(hidden_RLD[:, 0])
        is_repeated = early_exit.is_same(before, now) & (index > 0)
        streaks = tf.where(is_repeated, streaks + 1, 1)
        logits = tf.tensor_scatter_nd_update(logits, examples[:, None], now)
        depth = tf.fill(tf.shape(examples), index + 1)
        num_layers = tf.tensor_scatter_nd_update(num_layers, examples[:, None], depth)
        stays = (streaks < early_exit.patience) & (index < last)
        stays_R = tf.repeat(stays, rows)
        of_rows = [tf.boolean_mask(values, stays_R) for values in (hidden_RLD, mask_RL)]
        of_examples = [tf.boolean_mask(values, stays) for values in (examples, streaks, now)]
        return index + 1, *of_rows, *of_examples, logits, num_layers

    start = answers(tf.zeros_like(hidden_RLD[:, 0]))  # replaced by the first layer
    examples, ones = tf.range(num_examples), tf.ones([num_examples], tf.int32)
    state = (tf.constant(0), hidden_RLD, mask_RL, examples, ones, start, start, ones)
    *_, logits, num_layers = tf.while_loop(
        lambda index, hidden, mask, examples, *_: tf.size(examples) > 0,
        body,
        state,
        shape_invariants=tuple(
            tf.TensorShape([None, *x.shape[1:]]) if x.shape.rank else x.shape for x in state
        ),
        maximum_iterations=last + 1,
    )
    return {"logits": logits, "num_layers": num_layers}


def _layer_function(model: ModelWithHead) -> Callable:
    """A function of a layer's index, which may be a tensor, hidden states and mask."""
    blocks, inner = model.encoder.block_functions(plain=True), model.config.inner_group_num

    def layer(first_block: int, hidden, mask):
        for block in blocks[first_block : first_block + inner]:
            hidden = block(hidden, mask)
        return hidden

    if model.config.repeats_one_layer:
        return lambda index, hidden, mask: layer(0, hidden, mask)
    firsts = range(0, len(blocks), inner)
    return lambda index, hidden, mask: tf.switch_case(
        index, [lambda first=first: layer(first, hidden, mask) for first in firsts]
    )
