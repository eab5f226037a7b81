"""The model that distillation trains: a student whose outputs stand beside those of its teacher.

Shape legend: `model/encoder.py`; Z is the number of hidden states of the student, the embeddings included.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.formats.folding import layer_states
from albert_tf.formats.weights import POOLER
from albert_tf.model.encoder import Dense, fold_seed, prefixed
from albert_tf.model.heads import ModelWithHead
from albert_tf.tasks.distillation import random_masks

MASKED_LM_HEAD = "cls/predictions/"
_MASKED_SITE = 2_000_000  # of the dropout of the masked text; others have smaller numbers

# Inputs -> Z hidden states [B, L, D] float32 of the teacher, at the depths of the student's.
TeacherStates = Callable[[Any], Sequence[tf.Tensor]]
# Inputs, seed -> inputs with masked tokens, and `masked_lm_positions`; see `random_masks.masked`.
Masks = Callable[[Any, Any], tuple[Any, Any]]


class Student(tf_keras.Model):
    """The encoder of a model, its head, its teacher, and the masks of its masked LM.

    Args:
      model: the model that is trained; an `AlbertForPreTraining` if there are masks.
      teacher: the hidden states to learn.
      to_teacher: maps hidden states to the teacher's width; None if both have the same.
      masks: masks the text for the masked-LM head; None if that is not trained.
    """

    def __init__(
        self,
        model: ModelWithHead,
        teacher: TeacherStates,
        *,
        to_teacher: Dense | None = None,
        masks: Masks | None = None,
    ):
        super().__init__(dtype=model.dtype_policy)
        self.config = model.config
        # Checkpoints name variables by attributes. With the model's own, its class reads them (formats/run.py).
        for name, part in vars(model).items():
            if not name.startswith("_") and isinstance(part, (tf_keras.layers.Layer, dict)):
                setattr(self, name, part)
        self.to_teacher = to_teacher
        self.teacher = teacher
        self.masks = masks
        self.built = True

    def call(self, inputs, training=False, seed=None):
        """`student` and `teacher`: lists of Z hidden states [B, L, D] float32; with masks, also masked LM."""
        outputs = self.encoder(inputs, training=training, seed=seed, output_hidden_states=True)
        states = layer_states(outputs["hidden_states"], self.config)
        hidden_states = [tf.cast(state, tf.float32) for state in states]
        if self.to_teacher is not None:
            hidden_states = [self.to_teacher(hidden_BLD) for hidden_BLD in hidden_states]
        answers = {"student": hidden_states, "teacher": self.teacher(inputs)}
        if self.masks:
            answers |= self._masked_lm(self.masks, inputs, training, seed)
        return answers

    def _masked_lm(self, masks: Masks, inputs, training: bool, seed) -> dict[str, tf.Tensor]:
        """`masked_lm_positions` int32 [B, P] and `masked_lm_logits` [B, P, V], of a second pass with masked tokens."""
        masked_inputs, chosen = masks(inputs, seed)
        seed = fold_seed(seed, _MASKED_SITE)
        sequence_BLD = self.encoder(masked_inputs, training=training, seed=seed)["sequence_output"]
        hidden_BPD = tf.gather(sequence_BLD, chosen["masked_lm_positions"], batch_dims=1)
        word_embeddings_VE = self.encoder.embeddings.word_embeddings
        logits_BPV = self.masked_lm_head(hidden_BPD, word_embeddings_VE)
        return {**chosen, "masked_lm_logits": logits_BPV}

    def named_variables(self) -> dict[str, tf.Variable]:
        """The variables on which the outputs depend; others would only decay."""
        variables = dict(self.encoder.named_variables())
        if self.to_teacher is not None:
            variables |= prefixed({"to_teacher/": self.to_teacher})
        if self.masks:
            variables |= prefixed({MASKED_LM_HEAD: self.masked_lm_head})
        return {name: variable for name, variable in variables.items() if name not in POOLER}


def masks_of(mask_id: int, vocab_size: int, longest: int) -> Masks:
    """The function that masks texts of up to `longest` tokens; see `random_masks.masked`."""
    return functools.partial(
        random_masks.masked, mask_id=mask_id, vocab_size=vocab_size, longest=longest
    )
