"""Masked-LM, next-sentence and sentence-order accuracy of any checkpoint, independent of its training task.

A model's sentence head distinguishes "in order" from "changed". In its training, "changed" meant from another passage
(NSP) or swapped (SOP). There are four numbers for each of these two tasks:

own head     the trained head, on pairs of either task. For the rows NSP and SOP, this must be the number in the paper's
             Table 5. A head that was trained only on ordered pairs (the row "none") always answers 0.
commonest    the score of giving the most frequent answer to all pairs, which is chance.
probe        a logistic regression on the pooled output, trained on pairs of held-out text with labels of the task;
             nothing else is trained. It measures the information in the representation, and is the only fair
             number for the row "none".
held out     own head and most frequent answer on the probe's pairs of held-out text, which is similar to the training
             text.
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
from albert_tf.data.reading import first_batches
from albert_tf.data.record_set import find_pretraining_records
from albert_tf.formats.pretrained import build_model, read_weights
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.text.tokenizer import Tokenizer

BATCH = 64
PAIR_TASKS = ("nsp", "sop")  # those whose pairs can be changed


def load(
    path: str, intrinsic_dir: str, num_hidden_layers: int | None = None
) -> AlbertForPreTraining:
    """Loads a checkpoint and checks that it fits a development set, the output of `development_set`."""
    weights = read_weights(path, num_hidden_layers)
    if weights.vocabulary:
        sha256 = Tokenizer.from_file(weights.vocabulary).sha256
        record_set = find_pretraining_records(os.path.join(intrinsic_dir, "none"), "intrinsic_dir")
        if record_set.metadata.get("spm_sha256", sha256) != sha256:
            raise UserError(f"--intrinsic_dir: has another vocabulary than {path}; make it again")
    model, report = build_model(weights)
    if not isinstance(model, AlbertForPreTraining):
        raise UserError(
            f"{path}: is {weights.model_class}, which has no masked-LM head; expected a pretrained model"
        )
    if report.initialized:
        raise UserError(f"{path}: its file has no values for {report.initialized[0]}")
    return model


def measure(
    model: AlbertForPreTraining,
    intrinsic_dir: str,
    probe_dirs: Mapping[str, str],
    max_examples: int,
    max_probe_examples: int,
) -> dict[str, Any]:
    """The intrinsic evaluation of a model.

    Args:
      intrinsic_dir: output folder of `development_set`.
      probe_dirs: sentence task -> records of held-out text for training its probe; a missing task gets no probe.
      max_examples: maximum number of examples of each set; 0 takes all; so does `max_probe_examples`, of each probe.

    Returns:
      Accuracies between 0 and 1, as described above; those of held-out text end in `_held_out`. `<task>_says_changed`
      is the share of pairs for which the own head answers "changed"; `masked_pieces` is the number of masked tokens.
    """
    forward = tf.function(lambda features: _outputs(model, features), reduce_retracing=True)
    masked = run_over(forward, model, os.path.join(intrinsic_dir, "none"), max_examples)
    num_masked = masked["masked_pieces"].sum()
    numbers = {
        "masked_lm_accuracy": float(masked["masked_hits"].sum() / num_masked),
        "masked_lm_loss": float(masked["masked_losses"].sum() / num_masked),
        "masked_pieces": int(num_masked),
        "examples": {"none": len(masked["labels"])},
    }
    for task in PAIR_TASKS:
        dev = run_over(forward, model, os.path.join(intrinsic_dir, task), max_examples)
        numbers["examples"][task] = len(dev["labels"])
        numbers |= own_head(dev, task)
        numbers[f"{task}_says_changed"] = float(dev["answers"].mean())
        if task in probe_dirs:
            held_out = run_over(forward, model, probe_dirs[task], max_probe_examples)
            if len(set(held_out["labels"].tolist())) < 2:
                raise UserError(
                    f"{probe_dirs[task]}: all pairs have one label; expected records of --sentence_task={task}"
                )
            numbers[f"{task}_probe"] = probe_accuracy(held_out, dev)
            numbers["examples"][f"{task}_held_out"] = len(held_out["labels"])
            scores = own_head(held_out, task)
            numbers |= {f"{name}_held_out": value for name, value in scores.items()}
    return numbers


def own_head(outputs: Mapping[str, np.ndarray], task: str) -> dict[str, float]:
    """Accuracy of the head's answers, and of giving the most frequent answer to all pairs."""
    changed = float(np.mean(outputs["labels"]))
    return {
        f"{task}_own_head": float(np.mean(outputs["answers"] == outputs["labels"])),
        f"{task}_commonest": max(changed, 1 - changed),
    }


def _outputs(model: AlbertForPreTraining, features: Mapping[str, tf.Tensor]) -> dict:
    """The outputs that the evaluation needs, for each example of a batch, [B, ...]."""
    outputs = model(features, training=False)
    logits = outputs["masked_lm_logits"]
    ids = features["masked_lm_ids"]
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
    """Outputs of a function for the examples in a folder of records that fit the model; each is [examples, ...].

    `forward` is a function of features [B, values]; `max_examples` is a number of examples, from the first on, where 0
    takes all.
    """
    record_set = find_pretraining_records(folder, "intrinsic_dir")
    vocab_size = record_set.metadata.get("vocab_size", model.config.vocab_size)
    if vocab_size != model.config.vocab_size:
        raise UserError(
            f"{folder}: made with a vocabulary of {vocab_size} tokens, the model has {model.config.vocab_size};"
            " make the records with the model's vocabulary"
        )
    length = record_set.metadata["max_seq_length"]
    if length > model.config.max_position_embeddings:
        raise UserError(
            f"{folder}: has {length} tokens an example, the model's max_position_embeddings is"
            f" {model.config.max_position_embeddings}; make the records shorter"
        )
    outputs = []
    number = 0
    for features in first_batches(record_set, record_set.schema, BATCH):
        outputs.append({name: value.numpy() for name, value in forward(features).items()})
        number += len(next(iter(outputs[-1].values())))
        if max_examples and number >= max_examples:
            break
    return {
        name: np.concatenate([batch[name] for batch in outputs])[: max_examples or None]
        for name in outputs[0]
    }


def probe_accuracy(fitted_to: Mapping[str, np.ndarray], dev: Mapping[str, np.ndarray]) -> float:
    """Accuracy on `dev` of a logistic regression trained on other examples; `pooled` is [n, D], `labels` [n]."""
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    with warnings.catch_warnings():
        # Features without information converge slowly.
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit(fitted_to["pooled"], fitted_to["labels"])
    return float(probe.score(dev["pooled"], dev["labels"]))
