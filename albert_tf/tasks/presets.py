"""Hyper-parameters for --preset: `paper` is Table 14, `readme` the README of the original.

The rows of each task are in its `definition.py`. The README differs from the paper for SQuAD 2.0 (rate, length, epochs)
and RACE (rate and dropout; "the v1 setting diverges" for v2 models, README:46). For GLUE, the README's run_glue.sh
repeats the paper's rows, except for WNLI, which it does not have.
"""

from typing import Any


def row(
    learning_rate: float,
    batch_size: int,
    dropout: float,
    num_train_steps: int | None,
    num_warmup_steps: int | None,
    max_seq_length: int,
    **changes: Any,
) -> dict[str, Any]:
    """A row of Table 14; `dropout` is the encoder's, and the classifier's is 0.1 in every row."""
    return {
        "optimizer": "adamw",
        "bias_correction": False,
        "learning_rate": learning_rate,
        "train_batch_size": batch_size,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "classifier_dropout_prob": 0.1,
        "num_train_steps": num_train_steps,
        "num_warmup_steps": num_warmup_steps,
        "max_seq_length": max_seq_length,
        "eval_every_steps": 100,  # run_glue.sh, save_checkpoints_steps
        **changes,
    }
