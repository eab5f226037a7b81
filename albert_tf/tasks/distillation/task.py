"""Distills the hidden states of a trained encoder into a smaller one.

Sources of the losses: hidden states, TinyBERT (arXiv 1909.10351, equation 8), here relative to the teacher's variance,
so that all layers count alike; mean vectors, LEAF (2509.12539); masked LM, BERT (1810.04805, section 3.1). Shape
legend: `model/encoder.py`; Z is the number of hidden states of the student, the embeddings included.
"""

import functools
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings
from albert_tf.data.datasets import TableData
from albert_tf.data.feature_table import FeatureTable, lengths_to_pad_to
from albert_tf.data.reading import EXAMPLE_WEIGHTS, example_weights
from albert_tf.formats import pretrained
from albert_tf.formats.folding import layer_states, matched_layers
from albert_tf.formats.tokenizer_files import vocabulary_files
from albert_tf.formats.weights import POOLER
from albert_tf.model import heads
from albert_tf.model.encoder import Dense, Initializers, fold_seed, prefixed
from albert_tf.model.heads import ModelWithHead
from albert_tf.tasks.distillation import random_masks
from albert_tf.tasks.distillation.settings import DistillationConfig, DistillationRunConfig
from albert_tf.tasks.text_report import TokenCounts, cut_line
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.losses import Ratio, accuracy, cross_entropy
from albert_tf.training.task import Features, Files, Outputs, Predictions, Task
from albert_tf.user_files.table_files import read_texts

_TEXTS_PER_CALL = 10_000
_TEXTS_FOR_VARIANCE, _TEXTS_AT_ONCE = 256, 8
_MASKED_LM_HEAD = "cls/predictions/"
_MASKED_SITE = 2_000_000  # of the dropout of the masked text; others have smaller numbers


@functools.cache
def student_class(model_class: type[ModelWithHead]) -> type[ModelWithHead]:
    """The class of a model whose outputs are its own hidden states and its teacher's."""

    def call(self, inputs, training=False, seed=None):
        """`student` and `teacher`: lists of Z hidden states [B, L, D] float32; with `masks`, also masked LM."""
        outputs = self.encoder(inputs, training=training, seed=seed, output_hidden_states=True)
        states = layer_states(outputs["hidden_states"], self.config)
        hidden_states = [tf.cast(state, tf.float32) for state in states]
        if self.to_teacher is not None:
            hidden_states = [self.to_teacher(hidden_BLD) for hidden_BLD in hidden_states]
        answers = {"student": hidden_states, "teacher": self.teacher(inputs)}
        if self.masks:
            masked, chosen = self.masks(inputs, seed)
            seed = fold_seed(seed, _MASKED_SITE)
            sequence_BLD = self.encoder(masked, training=training, seed=seed)["sequence_output"]
            hidden_BPD = tf.gather(sequence_BLD, chosen["masked_lm_positions"], batch_dims=1)
            word_embeddings_VE = self.encoder.embeddings.word_embeddings
            logits_BPV = self.masked_lm_head(hidden_BPD, word_embeddings_VE)
            answers |= {**chosen, "masked_lm_logits": logits_BPV}
        return answers

    def named_variables(self):
        """The variables on which the hidden states depend; others would only decay."""
        variables = self.encoder.named_variables()
        if self.to_teacher is not None:
            added = self.to_teacher.named_variables().items()
            variables |= {f"to_teacher/{name}": variable for name, variable in added}
        if self.masks:
            variables |= prefixed({_MASKED_LM_HEAD: self.masked_lm_head})
        return {name: variable for name, variable in variables.items() if name not in POOLER}

    methods = {"call": call, "named_variables": named_variables}
    return type(f"Distilled{model_class.__name__}", (model_class,), methods)


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
        models = self._weights.config, self._teacher.config
        self._positions = min(one.max_position_embeddings for one in models)
        if config.max_seq_length > self._positions:
            reason = f"is above the {self._positions} positions of student and teacher"
            config.refuse("max_seq_length", reason)
        self._matched = matched_layers(*(one.num_hidden_layers for one in models))
        own = heads.MODEL_CLASSES[self._weights.model_class]
        self._model_class = heads.AlbertForPreTraining if config.masked_lm_weight else own
        self.train_data = self._read("input_file") if run.do_train else None
        self.eval_data = self._read("eval_file") if run.do_eval and config.eval_file else None
        self._variances: dict[str, list[float]] = {}  # by the use of the texts: train, eval

    def _vocabulary(self) -> Tokenizer:
        """The teacher's vocabulary, which must be the student's."""
        own, other = self._weights, self._teacher
        path = other.vocabulary or own.vocabulary
        if not path:
            raise UserError(f"--teacher={self.config.teacher}: has no vocabulary beside it")
        tokenizer = Tokenizer.from_file(path, **other.cleaning, rules=other.rules.of_words())
        if not own.has_vocabulary_of(tokenizer) or own.config.vocab_size != other.config.vocab_size:
            reason = f"has another vocabulary than --teacher={self.config.teacher}"
            raise UserError(f"--init_checkpoint: {reason}; fold that model")
        return tokenizer

    def _read(self, flag: str) -> TableData:
        """The texts of a flag as token ids with [CLS] and [SEP]."""
        config, tokenizer, patterns = self.config, self._tokenizer, getattr(self.config, flag)
        texts = read_texts(patterns, f"--{flag}={patterns}")
        rows: list[Any] = []
        uncut_lengths: list[int] = []
        cls, sep = (np.array([id], np.int32) for id in (tokenizer.cls_id, tokenizer.sep_id))
        for start in range(0, len(texts), _TEXTS_PER_CALL):
            for ids in tokenizer.encode_batch(texts[start : start + _TEXTS_PER_CALL]):
                rows.append(np.concatenate([cls, ids[: config.max_seq_length - 2], sep]))
                uncut_lengths.append(len(ids) + 2)
        table = FeatureTable.from_rows({"input_ids": rows}, {})
        print(f"--{flag}: {len(table):,} texts, {int(table.row_splits[-1]):,} tokens", flush=True)
        self._warn_of_texts(flag, table, uncut_lengths)
        if flag == "input_file" and (longest := table.lengths.max()) < self._positions:
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

    def build_model(self, *, dtype: str, recompute_activations: bool, seed: int) -> ModelWithHead:
        """The student with the values of --init_checkpoint; it also calls the teacher."""
        model = student_class(self._model_class)(
            self.model_config, dtype=dtype, recompute_activations=recompute_activations, seed=seed
        )
        pretrained.assign_weights(self._model_class.named_variables(model), self._weights)
        model.masks = None
        if self.config.masked_lm_weight:
            # Trained word embeddings are long: a new head would begin with a loss far above ln V.
            if not any(name.startswith(_MASKED_LM_HEAD) for name in self._weights.arrays):
                gamma_E = model.masked_lm_head.layer_norm.gamma
                gamma_E.assign(tf.zeros_like(gamma_E))
            sizes = {"mask_id": self._tokenizer.mask_id, "longest": self.config.max_seq_length}
            sizes["vocab_size"] = self.model_config.vocab_size
            model.masks = functools.partial(random_masks.masked, **sizes)
        teacher, _ = pretrained.build_model(self._teacher, dtype=self.config.teacher_precision)
        width, wanted = self.model_config.hidden_size, teacher.config.hidden_size
        model.to_teacher = None
        if width != wanted:  # learned with the student, and thrown away
            initializers = Initializers(self.model_config, seed + 1)
            model.to_teacher = Dense(width, wanted, initializers, "float32", name="to_teacher")

        def states(inputs) -> list[tf.Tensor]:
            outputs = teacher.encoder(inputs, training=False, output_hidden_states=True)
            hidden_states = layer_states(outputs["hidden_states"], teacher.config)
            # The tape stops here; it would also go back through the teacher.
            matched = (hidden_states[layer] for layer in self._matched)
            return [tf.stop_gradient(tf.cast(state, tf.float32)) for state in matched]

        model.teacher = states
        train, held_out = self.train_data or self.eval_data, self.eval_data or self.train_data
        assert train and held_out
        texts = {"train": train.table, "eval": held_out.table}
        self._variances = {use: _variances(states, table) for use, table in texts.items()}
        return model

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """Number of tokens, of texts, and of masked tokens."""
        weights_BL, weights_B = _weights(features)
        counts = dict.fromkeys(("hidden_loss", "last_loss"), tf.reduce_sum(weights_BL))
        counts["vector_loss"] = tf.reduce_sum(weights_B)
        if self.config.masked_lm_weight:
            counts["masked_lm_loss"] = tf.reduce_sum(_masked_lm_weights(features))
        return counts

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Relative squared errors of hidden states, 1 - the cosine of mean vectors, masked LM, each with its weight."""
        config, counts = self.config, self.loss_counts(features)
        weights_BL, weights_B = _weights(features)
        errors_BLZ = self._relative_errors(outputs, features)
        hidden_BL = tf.reduce_mean(errors_BLZ[:, :, :-1], axis=-1)
        apart_B = 1.0 - _cosines(outputs, weights_BL)
        sums = {
            "hidden_loss": config.hidden_weight * tf.reduce_sum(hidden_BL * weights_BL),
            "last_loss": config.last_weight * tf.reduce_sum(errors_BLZ[:, :, -1] * weights_BL),
            "vector_loss": config.vector_weight * tf.reduce_sum(apart_B * weights_B),
        }
        if config.masked_lm_weight:
            loss = cross_entropy(*_masked_lm(outputs, features))
            sums["masked_lm_loss"] = config.masked_lm_weight * loss.sum
        return {name: Ratio(value, counts[name]) for name, value in sums.items()}

    def _relative_errors(self, outputs: Outputs, features: Features) -> tf.Tensor:
        """Squared errors of each token's hidden states by the teacher's variance, [B, L, Z].

        The variance is that of the training text in training, and that of the held-out text in evaluations, so that
        an evaluation has the same value whether or not the run also trains.
        """
        variances = self._variances["eval" if EXAMPLE_WEIGHTS in features else "train"]
        pairs = zip(outputs["student"], outputs["teacher"], variances, strict=True)
        errors = [
            tf.reduce_sum(tf.square(student_BLD - teacher_BLD), axis=-1) / variance
            for student_BLD, teacher_BLD, variance in pairs
        ]
        return tf.stack(errors, axis=-1)

    def metrics(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Masked-LM accuracy."""
        is_asked = self.config.masked_lm_weight > 0
        return {"masked_lm_accuracy": accuracy(*_masked_lm(outputs, features))} if is_asked else {}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """For each text: sums of the relative errors [B, Z], number of tokens [B, 1], cosine of mean vectors [B, 1]."""
        weights_BL, _ = _weights(features)
        errors_BZ = tf.einsum("BLZ,BL->BZ", self._relative_errors(outputs, features), weights_BL)
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

    def save_model(self, model: Any, folder: str, history: Mapping[str, Mapping]) -> None:
        """Writes the student as a model of its own class, or with the masked-LM head that is asked for."""
        own = self._model_class(self.model_config, dtype="float32")
        values = self._model_class.named_variables(model)
        for name, variable in own.named_variables().items():
            variable.assign(values[name])
        known = {*self._weights.arrays, *model.named_variables()}
        is_same = self._model_class.__name__ == self._weights.model_class
        pretrained.save_pretrained(
            own,
            folder,
            spm_model_file=self._tokenizer,
            task=dict(self._weights.task_settings) if is_same else {},
            untrained=[name for name in values if name not in known],
            card={"Data": {"teacher": self.config.teacher}, **history},
        )


def _variances(states, table: FeatureTable) -> list[float]:
    """For each hidden state to learn, the variance of the teacher's vectors around their mean, over some texts."""
    examples = np.arange(min(len(table), _TEXTS_FOR_VARIANCE))
    count, sums, squares = 0, [], []
    for chosen in np.split(examples, range(_TEXTS_AT_ONCE, len(examples), _TEXTS_AT_ONCE)):
        batch = table.batch(chosen, int(table.lengths[chosen].max()), ["input_ids"])
        is_token = batch["input_mask"].astype(bool)
        count += is_token.sum()
        taken = [state.numpy()[is_token].astype(np.float64) for state in states(batch)]
        sums.append([values.sum(axis=0) for values in taken])
        squares.append([np.sum(values**2) for values in taken])
    means_ZD, squares_Z = np.sum(sums, axis=0) / count, np.sum(squares, axis=0) / count
    return [float(value) for value in squares_Z - np.sum(means_ZD**2, axis=-1)]


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
    ours_BD, theirs_BD = (
        heads.unit_length(tf.einsum("BLD,BL->BD", outputs[name][-1], weights_BL))
        for name in ("student", "teacher")
    )
    return tf.reduce_sum(ours_BD * theirs_BD, axis=-1)
