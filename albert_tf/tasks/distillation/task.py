"""Distills the hidden states of a trained encoder into a smaller one.

Sources of the losses: hidden states, TinyBERT (arXiv 1909.10351, equation 8), here relative to the teacher's variance,
so that all layers count alike; mean vectors, LEAF (2509.12539); masked LM, BERT (1810.04805, section 3.1). Shape
legend: `model/encoder.py`; Z is the number of hidden states of the student, the embeddings included.
"""

import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings
from albert_tf.data.datasets import TableData
from albert_tf.data.feature_table import FeatureTable, lengths_to_pad_to
from albert_tf.data.reading import example_weights
from albert_tf.formats import pretrained
from albert_tf.formats.folding import layer_states, matched_layers
from albert_tf.formats.tokenizer_files import vocabulary_files
from albert_tf.model import heads
from albert_tf.model.encoder import Dense, Initializers
from albert_tf.model.heads import ModelWithHead
from albert_tf.tasks.distillation import random_masks
from albert_tf.tasks.distillation.settings import DistillationConfig, DistillationRunConfig
from albert_tf.tasks.distillation.student import MASKED_LM_HEAD, Student, TeacherStates, masks_of
from albert_tf.tasks.text_report import TokenCounts, cut_line
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.losses import Ratio, accuracy, cross_entropy
from albert_tf.training.task import Features, Files, Outputs, Predictions, Task
from albert_tf.user_files.table_files import read_texts

_TEXTS_PER_CALL = 10_000
_TEXTS_FOR_VARIANCE = 256
_TEXTS_AT_ONCE = 8


class DistillationTask(Task):
    """Trains a student; its head keeps its values, but for a masked-LM head that is asked for."""

    best_metric = "vector_cosine"
    train_data: TableData | None = None
    eval_data: TableData | None = None
    _has_warned: bool = False

    def __init__(self, config: DistillationConfig, run: DistillationRunConfig):
        config.check_with({DistillationRunConfig: run})
        self.config = config
        self._weights = pretrained.read_weights(run.init_checkpoint)
        self._teacher = pretrained.read_weights(config.teacher)
        self.model_config = self._weights.config
        self._tokenizer = self._vocabulary()

        own_config = self._weights.config
        config_of_teacher = self._teacher.config
        self._positions = min(
            own_config.max_position_embeddings, config_of_teacher.max_position_embeddings
        )
        if config.max_seq_length > self._positions:
            reason = f"={config.max_seq_length} is above the {self._positions} positions of student and teacher"
            config.refuse("max_seq_length", reason)
        self._matched = matched_layers(
            own_config.num_hidden_layers, config_of_teacher.num_hidden_layers
        )
        self._model_class = heads.MODEL_CLASSES[self._weights.model_class]
        if config.masked_lm_weight:
            self._model_class = heads.AlbertForPreTraining
        self._model: ModelWithHead | None = None  # whose encoder and head are the student's

        self.train_data = self._read("input_file") if run.do_train else None
        self.eval_data = self._read("eval_file") if run.do_eval and config.eval_file else None
        # For each hidden state, the variance of the teacher's in the training text, and in the held-out text.
        self._variances_in_training: list[float] = []
        self._variances_in_evaluation: list[float] = []

    def _vocabulary(self) -> Tokenizer:
        """The teacher's vocabulary, which must be the student's."""
        student = self._weights
        teacher = self._teacher
        path = teacher.vocabulary or student.vocabulary
        if not path:
            raise UserError(f"--teacher={self.config.teacher}: has no vocabulary beside it")
        tokenizer = Tokenizer.from_file(path, **teacher.cleaning, rules=teacher.rules.of_words())
        has_same_size = student.config.vocab_size == teacher.config.vocab_size
        if not student.has_vocabulary_of(tokenizer) or not has_same_size:
            reason = f"has another vocabulary than --teacher={self.config.teacher}"
            raise UserError(f"--init_checkpoint: {reason}; fold that model")
        return tokenizer

    def _read(self, flag: str) -> TableData:
        """The texts of a flag as token ids with [CLS] and [SEP]."""
        config = self.config
        tokenizer = self._tokenizer
        patterns = getattr(config, flag)
        texts = read_texts(patterns, f"--{flag}={patterns}")
        rows: list[Any] = []
        uncut_lengths: list[int] = []
        cls = np.array([tokenizer.cls_id], np.int32)
        sep = np.array([tokenizer.sep_id], np.int32)
        for start in range(0, len(texts), _TEXTS_PER_CALL):
            for ids in tokenizer.encode_batch(texts[start : start + _TEXTS_PER_CALL]):
                rows.append(np.concatenate([cls, ids[: config.max_seq_length - 2], sep]))
                uncut_lengths.append(len(ids) + 2)
        table = FeatureTable.from_rows({"input_ids": rows}, {})
        print(f"--{flag}: {len(table):,} texts, {int(table.row_splits[-1]):,} tokens", flush=True)
        self._warn_of_texts(flag, table, uncut_lengths)
        longest = table.lengths.max()
        if flag == "input_file" and longest < self._positions:
            note = f"longer texts than these ({longest} tokens) are not learned"
            print(f"NOTE      {note}", flush=True)
        buckets = lengths_to_pad_to(table.lengths, config.max_seq_length, 6)
        return TableData(table, ["input_ids"], buckets, by_length=True)

    def _warn_of_texts(self, flag: str, table: FeatureTable, uncut_lengths: list[int]) -> None:
        """Says how many texts are cut, and once if the vocabulary does not know much of them."""
        limit = self.config.max_seq_length
        lengths = np.array(uncut_lengths)
        if np.any(lengths > limit):
            line = cut_line(lengths, "max_seq_length", limit, self._positions)
            print(f"--{flag}: {line}", file=sys.stderr, flush=True)
        counts = TokenCounts()
        counts.add(table.sequences["input_ids"], self._tokenizer)
        warning = counts.warning()
        if warning and not self._has_warned:
            self._has_warned = True
            print(f"--{flag}: {warning}", file=sys.stderr, flush=True)

    def data_files(self) -> Mapping[str, Mapping[str, str]]:
        """See `Task`."""
        if not self.eval_data:
            return {}
        return {"eval": {"file": self.config.eval_file, "sha256": self.eval_data.table.sha256()}}

    def settings(self) -> Mapping[str, Settings | Mapping]:
        text = self.train_data or self.eval_data
        assert text
        return {
            "task": self.config,
            "model": self.model_config,
            "head": {"model_class": self._model_class.__name__},
            "text": {"examples": len(text.table), "tokens": int(text.table.row_splits[-1])},
        }

    def build_model(self, *, dtype: str, recompute_activations: bool, seed: int) -> Student:
        """The student with the values of --init_checkpoint; it also calls the teacher."""
        config = self.model_config
        model = self._model_class(
            config, dtype=dtype, recompute_activations=recompute_activations, seed=seed
        )
        pretrained.assign_weights(model.named_variables(), self._weights)
        self._model = model
        masks = None
        if self.config.masked_lm_weight:
            # Trained word embeddings are long: a new head would begin with a loss far above ln V.
            if not any(name.startswith(MASKED_LM_HEAD) for name in self._weights.arrays):
                gamma_E = model.masked_lm_head.layer_norm.gamma
                gamma_E.assign(tf.zeros_like(gamma_E))
            mask_id = self._tokenizer.mask_id
            masks = masks_of(mask_id, config.vocab_size, self.config.max_seq_length)

        teacher, _ = pretrained.build_model(self._teacher, dtype=self.config.teacher_precision)
        to_teacher = None
        width = teacher.config.hidden_size
        if config.hidden_size != width:  # learned with the student, and thrown away
            initializers = Initializers(config, seed + 1)
            to_teacher = Dense(
                config.hidden_size, width, initializers, "float32", name="to_teacher"
            )

        states = functools.partial(_teacher_states, teacher, self._matched)
        self._measure_variances(states)
        return Student(model, states, to_teacher=to_teacher, masks=masks)

    def _measure_variances(self, states: TeacherStates) -> None:
        """Sets the variances of the teacher's hidden states; without one of the two texts, by the other."""
        train = self.train_data or self.eval_data
        held_out = self.eval_data or self.train_data
        assert train and held_out
        self._variances_in_training = _variances(states, train.table)
        self._variances_in_evaluation = _variances(states, held_out.table)

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """Number of tokens, of texts, and of masked tokens."""
        weights_BL, weights_B = _weights(features)
        counts = dict.fromkeys(("hidden_loss", "last_loss"), tf.reduce_sum(weights_BL))
        counts["vector_loss"] = tf.reduce_sum(weights_B)
        if self.config.masked_lm_weight:
            counts["masked_lm_loss"] = tf.reduce_sum(_masked_lm_weights(features))
        return counts

    def losses(self, outputs: Outputs, features: Features, training: bool) -> Mapping[str, Ratio]:
        """Relative squared errors of hidden states, 1 - the cosine of mean vectors, masked LM, each with its weight.

        Errors are relative to the training text's variance in training, and to the held-out text's in evaluations, so
        that an evaluation has the same value whether or not the run also trains.
        """
        config = self.config
        counts = self.loss_counts(features)
        weights_BL, weights_B = _weights(features)

        # [2, 8, 4] of 4 pairs of layers -> [2, 8] of all but the last, and of the last
        variances = self._variances_in_training if training else self._variances_in_evaluation
        errors_BLZ = _relative_errors(outputs, variances)
        hidden_BL = tf.reduce_mean(errors_BLZ[:, :, :-1], axis=-1)
        last_BL = errors_BLZ[:, :, -1]

        # [2]: of the mean vectors of texts
        apart_B = 1.0 - _cosines(outputs, weights_BL)
        sums = {
            "hidden_loss": config.hidden_weight * tf.reduce_sum(hidden_BL * weights_BL),
            "last_loss": config.last_weight * tf.reduce_sum(last_BL * weights_BL),
            "vector_loss": config.vector_weight * tf.reduce_sum(apart_B * weights_B),
        }
        if config.masked_lm_weight:
            loss = cross_entropy(*_masked_lm(outputs, features))
            sums["masked_lm_loss"] = config.masked_lm_weight * loss.sum
        return {name: Ratio(value, counts[name]) for name, value in sums.items()}

    def metrics(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Masked-LM accuracy."""
        if not self.config.masked_lm_weight:
            return {}
        return {"masked_lm_accuracy": accuracy(*_masked_lm(outputs, features))}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """For each text: sums of the relative errors [B, Z], number of tokens [B, 1], cosine of mean vectors [B, 1]."""
        weights_BL, _ = _weights(features)
        errors_BLZ = _relative_errors(outputs, self._variances_in_evaluation)
        errors_BZ = tf.einsum("BLZ,BL->BZ", errors_BLZ, weights_BL)
        return {
            "errors": errors_BZ,
            "tokens": tf.reduce_sum(weights_BL, axis=1, keepdims=True),
            "cosine": _cosines(outputs, weights_BL)[:, None],
        }

    def evaluate(self, predictions: Predictions) -> Mapping[str, float]:
        """The mean cosine, and the relative error of each hidden state; `error_0` is that of the embeddings."""
        errors_Z = predictions["errors"].sum(axis=0) / predictions["tokens"].sum()
        return {
            "vector_cosine": float(predictions["cosine"].mean()),
            **{f"error_{layer}": float(error) for layer, error in enumerate(errors_Z)},
        }

    def vocabulary_files(self) -> Files:
        return vocabulary_files(self._tokenizer, self.model_config.max_position_embeddings)

    def save_model(self, model: Student, folder: str, history: Mapping[str, Mapping]) -> None:
        """Writes the student as a model of its own class, or with the masked-LM head that is asked for."""
        assert self._model
        has_values = {*self._weights.arrays, *model.named_variables()}
        is_same_class = self._model_class.__name__ == self._weights.model_class
        pretrained.save_pretrained(
            self._model,
            folder,
            spm_model_file=self._tokenizer,
            task=dict(self._weights.task_settings) if is_same_class else {},
            untrained=[name for name in self._model.named_variables() if name not in has_values],
            card={"Data": {"teacher": self.config.teacher}, **history},
        )


def _teacher_states(teacher: ModelWithHead, layers: Sequence[int], inputs) -> list[tf.Tensor]:
    """The teacher's hidden states after some of its layers, [B, L, D] float32 each; 0 are the embeddings."""
    outputs = teacher.encoder(inputs, training=False, output_hidden_states=True)
    hidden_states = layer_states(outputs["hidden_states"], teacher.config)
    # The tape stops here; it would also go back through the teacher.
    return [tf.stop_gradient(tf.cast(hidden_states[layer], tf.float32)) for layer in layers]


def _variances(states: TeacherStates, table: FeatureTable) -> list[float]:
    """For each hidden state to learn, the variance of the teacher's vectors around their mean, over some texts.

    It is the mean of the squared lengths of the vectors, less the squared length of their mean.
    """
    num_texts = min(len(table), _TEXTS_FOR_VARIANCE)
    examples = np.arange(num_texts)
    num_tokens = 0
    sums = []
    square_sums = []
    for chosen in np.split(examples, range(_TEXTS_AT_ONCE, num_texts, _TEXTS_AT_ONCE)):
        longest = int(table.lengths[chosen].max())
        batch = table.batch(chosen, longest, ["input_ids"])
        is_token_BL = batch["input_mask"].astype(bool)
        num_tokens += is_token_BL.sum()

        # Z x [8, 20, D] -> Z x [tokens, D], without the padding.
        vectors_of_layers = [
            state.numpy()[is_token_BL].astype(np.float64) for state in states(batch)
        ]
        sums.append([vectors.sum(axis=0) for vectors in vectors_of_layers])
        square_sums.append([np.sum(vectors**2) for vectors in vectors_of_layers])

    # [batches, Z, D] -> [Z, D], and [batches, Z] -> [Z].
    means_ZD = np.sum(sums, axis=0) / num_tokens
    mean_squares_Z = np.sum(square_sums, axis=0) / num_tokens
    variances_Z = mean_squares_Z - np.sum(means_ZD**2, axis=-1)
    return [float(variance) for variance in variances_Z]


def _relative_errors(outputs: Outputs, variances: Sequence[float]) -> tf.Tensor:
    """Squared errors of each token's hidden states by the teacher's variance, [B, L, Z]."""
    states = zip(outputs["student"], outputs["teacher"], variances, strict=True)
    errors = [
        tf.reduce_sum(tf.square(student_BLD - teacher_BLD), axis=-1) / variance
        for student_BLD, teacher_BLD, variance in states
    ]
    return tf.stack(errors, axis=-1)


def _weights(features: Features) -> tuple[tf.Tensor, tf.Tensor]:
    """1 for each token [B, L], and for each text [B]; 0 for padding and for texts that complete a batch."""
    mask_BL = tf.cast(features["input_mask"], tf.float32)
    weights_B = example_weights(features)
    return mask_BL * weights_B[:, None], weights_B


def _masked_lm_weights(features: Features) -> tf.Tensor:
    return random_masks.masked_weights(features["input_mask"]) * example_weights(features)[:, None]


def _masked_lm(outputs: Outputs, features: Features):
    labels_BP = tf.gather(features["input_ids"], outputs["masked_lm_positions"], batch_dims=1)
    return outputs["masked_lm_logits"], labels_BP, _masked_lm_weights(features)


def _cosines(outputs: Outputs, weights_BL: tf.Tensor) -> tf.Tensor:
    """The cosine of the mean vectors of student and teacher, [B]; the mean is over all tokens of the text."""
    student_BD = tf.einsum("BLD,BL->BD", outputs["student"][-1], weights_BL)
    teacher_BD = tf.einsum("BLD,BL->BD", outputs["teacher"][-1], weights_BL)
    return tf.reduce_sum(heads.unit_length(student_BD) * heads.unit_length(teacher_BD), axis=-1)
