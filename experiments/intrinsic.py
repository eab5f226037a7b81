"""Masked-LM, next-sentence and sentence-order accuracy of any checkpoint, whatever it was trained with.

A model's sentence head tells "in order" from "changed", where changed meant another passage (NSP) or swapped (SOP) when
it was trained. Four numbers are given for each of the two tasks:

own head     the trained head as it is, on pairs of either task. It is what the paper's Table 5 must have for the rows
             NSP and SOP. A head that was trained on ordered pairs alone (the row "none") says 0 to everything.
commonest    what saying the commoner answer to every pair scores: chance, in a set whose halves are not quite equal.
probe        a logistic regression on the pooled output, fitted to pairs of held-out text that are labelled for the
             task in question; nothing else is trained. It says what the representation holds, and is the only fair
             number for the row "none".
held out     own head and commonest answer for the same pairs of held-out text, which is of the training text's kind.
"""

import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from albert_tf.core.errors import UserError
from albert_tf.data import records
from albert_tf.formats.pretrained import build_model, read_weights
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.text.tokenizer import Tokenizer

BATCH = 64
SENTENCE_TASKS = ("nsp", "sop")


def load(path: str, intrinsic_dir: str) -> AlbertForPreTraining:
    """The model of a checkpoint that a development set can measure.

    Args:
      path: see `pretrained.read_weights`.
      intrinsic_dir: what data_prep.create_intrinsic_eval has written.

    Raises:
      UserError: the path holds no model; or the development set was made with another vocabulary.
    """
    weights = read_weights(path)
    if weights.vocabulary:
        known = Tokenizer.from_file(weights.vocabulary).sha256
        record_set = records.find_records(os.path.join(intrinsic_dir, "none"), "intrinsic_dir")
        record_set.require_vocabulary("intrinsic_dir", known, weights.vocabulary, "the model")
    model, _ = build_model(weights)
    if not isinstance(model, AlbertForPreTraining):
        raise UserError(
            f"{path}: is {weights.model_class}, which has no masked-LM head; expected a pretrained model"
        )
    return model


def measure(
    model: AlbertForPreTraining,
    intrinsic_dir: str,
    probe_dirs: Mapping[str, str],
    max_examples: int,
    max_probe_examples: int,
) -> dict[str, Any]:
    """All intrinsic numbers of a model.

    Args:
      model: what is measured.
      intrinsic_dir: what data_prep.create_intrinsic_eval has written.
      probe_dirs: records of held-out text that probes are fitted to, by sentence task; a task that is missing gets no
        probe.
      max_examples: most examples of each of the three sets; 0 takes all.
      max_probe_examples: most examples that a probe is fitted to; 0 takes all.

    Returns:
      `masked_lm_accuracy`, `masked_lm_loss`; for nsp and sop the accuracies `<task>_own_head`, `<task>_commonest` and
      `<task>_probe`, between 0 and 1; with the probe `<task>_own_head_held_out` and `<task>_commonest_held_out`;
      `<task>_says_changed`, share of pairs that the own head calls changed; `examples` of each set; `masked_pieces`.

    Raises:
      UserError: the records do not fit the model.
    """
    forward = tf.function(lambda features: _outputs(model, features), reduce_retracing=True)
    masked = run_over(forward, model, os.path.join(intrinsic_dir, "none"), max_examples)
    pieces = masked["masked_pieces"].sum()
    found = {
        "masked_lm_accuracy": float(masked["masked_hits"].sum() / pieces),
        "masked_lm_loss": float(masked["masked_losses"].sum() / pieces),
        "masked_pieces": int(pieces),
        "examples": {"none": len(masked["labels"])},
    }
    for task in SENTENCE_TASKS:
        dev = run_over(forward, model, os.path.join(intrinsic_dir, task), max_examples)
        found["examples"][task] = len(dev["labels"])
        found |= own_head(dev, task)
        found[f"{task}_says_changed"] = float(dev["answers"].mean())
        if task in probe_dirs:
            held_out = run_over(forward, model, probe_dirs[task], max_probe_examples)
            if len(set(held_out["labels"].tolist())) < 2:
                raise UserError(
                    f"{probe_dirs[task]}: all pairs have one label; expected records of --sentence_task={task}"
                )
            found[f"{task}_probe"] = probe_accuracy(held_out, dev)
            found["examples"][f"{task}_held_out"] = len(held_out["labels"])
            found |= {f"{name}_held_out": value for name, value in own_head(held_out, task).items()}
    return found


def own_head(outputs: Mapping[str, np.ndarray], task: str) -> dict[str, float]:
    """Accuracy of the head's answers, and of giving the commoner one to all.

    Example:
      answers [0, 1, 1, 1], labels [1, 1, 1, 0], "sop" -> {"sop_own_head": 0.5, "sop_commonest": 0.75}
    """
    changed = float(np.mean(outputs["labels"]))
    return {
        f"{task}_own_head": float(np.mean(outputs["answers"] == outputs["labels"])),
        f"{task}_commonest": max(changed, 1 - changed),
    }


def _outputs(model: AlbertForPreTraining, features: Mapping[str, tf.Tensor]) -> dict:
    """What is kept of each example of a batch, [B, ...]."""
    outputs = model(features, training=False)
    logits, ids = outputs["masked_lm_logits"], features["masked_lm_ids"]
    weights = features["masked_lm_weights"]
    hits = tf.cast(tf.argmax(logits, axis=-1, output_type=ids.dtype) == ids, tf.float32)
    log_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=logits)
    return {
        "masked_hits": tf.reduce_sum(hits * weights, axis=-1),
        "masked_losses": tf.reduce_sum(log_losses * weights, axis=-1),
        "masked_pieces": tf.reduce_sum(weights, axis=-1),
        "pooled": outputs["pooled_output"],
        "answers": tf.argmax(outputs["sentence_order_logits"], axis=-1, output_type=tf.int32),
        "labels": features["next_sentence_labels"][:, 0],
    }


def run_over(forward, model, folder: str, max_examples: int) -> dict[str, np.ndarray]:
    """A function's outputs for the examples of a folder, [examples, ...] each.

    Args:
      forward: features [B, values] -> outputs [B, ...] by name.
      model: whose sizes the records must fit.
      folder: of records.
      max_examples: most examples, the first; 0 takes all.

    Raises:
      UserError: the records do not fit the model.
    """
    record_set = records.find_records(folder, "intrinsic_dir")
    vocab_size = record_set.metadata.get("vocab_size", model.config.vocab_size)
    if vocab_size != model.config.vocab_size:
        raise UserError(
            f"{folder}: made with a vocabulary of {vocab_size} pieces, the model has {model.config.vocab_size};"
            " make the records with the model's --spm_model_file"
        )
    length, predictions = records.pretraining_lengths(record_set, "intrinsic_dir")
    if length > model.config.max_position_embeddings:
        raise UserError(
            f"{folder}: has {length} pieces an example, the model's max_position_embeddings is"
            f" {model.config.max_position_embeddings}; make the records shorter"
        )
    schema = records.pretraining_schema(length, predictions)
    found, number = [], 0
    for features in records.first_batches(record_set, schema, BATCH):
        found.append({name: value.numpy() for name, value in forward(features).items()})
        number += len(next(iter(found[-1].values())))
        if max_examples and number >= max_examples:
            break
    return {
        name: np.concatenate([batch[name] for batch in found])[: max_examples or None]
        for name in found[0]
    }


def probe_accuracy(fitted_to: Mapping[str, np.ndarray], dev: Mapping[str, np.ndarray]) -> float:
    """Accuracy on `dev` of a logistic regression fitted to other examples.

    Args:
      fitted_to: `pooled` float [n, D] and `labels` int [n].
      dev: the same of other examples.
    """
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # features of no use fit slowly
        probe.fit(fitted_to["pooled"], fitted_to["labels"])
    return float(probe.score(dev["pooled"], dev["labels"]))
