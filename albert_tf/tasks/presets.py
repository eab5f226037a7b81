"""Hyper-parameters of the paper's fine-tuning (Table 14) and of the original's README, for `--preset`.

Where the two conflict, both stand here: SQuAD 2.0 (rate, length, epochs) and RACE (rate and dropout; "the v1 setting
diverges" for v2 models, README:46). For GLUE, the README's run_glue.sh repeats the paper's rows, except WNLI, which it
leaves out. Imports no TensorFlow.
"""

from collections.abc import Mapping
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.tasks.classification.settings import task_key

_EVERY = 100  # steps between evaluated checkpoints, run_glue.sh; QNLI 200


def _row(rate, batch, dropout, steps, warmup, length, **others) -> dict[str, Any]:
    """A row of Table 14; the dropout is the encoder's, the classifier's is 0.1 throughout."""
    return {
        "optimizer": "adamw",
        "learning_rate": rate,
        "train_batch_size": batch,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "classifier_dropout_prob": 0.1,
        "num_train_steps": steps,
        "num_warmup_steps": warmup,
        "max_seq_length": length,
        "eval_every_steps": _EVERY,
        **others,
    }


PAPER: Mapping[str, Mapping[str, Any]] = {
    "cola": _row(1e-5, 16, 0.0, 5336, 320, 512),
    "stsb": _row(2e-5, 16, 0.0, 3598, 214, 512),
    "sst2": _row(1e-5, 32, 0.0, 20935, 1256, 512),
    "mnli": _row(3e-5, 128, 0.0, 10000, 1000, 512),
    "qnli": _row(1e-5, 32, 0.0, 33112, 1986, 512, eval_every_steps=200),
    "qqp": _row(5e-5, 128, 0.1, 14000, 1000, 512),
    "rte": _row(3e-5, 32, 0.1, 800, 200, 512),
    "mrpc": _row(2e-5, 32, 0.0, 800, 200, 512),
    "wnli": _row(2e-5, 16, 0.1, 2000, 250, 512),
    "squad1.1": _row(5e-5, 48, 0.0, 3649, 365, 384),
    "squad2.0": _row(3e-5, 48, 0.0, 8144, 814, 512),
    "race": _row(2e-5, 32, 0.1, 12000, 1000, 512),
}
_README_SQUAD_2 = {
    **_row(5e-5, 48, 0.0, None, None, 384),
    "num_train_epochs": 2.0,
    "warmup_proportion": 0.1,
}
README: Mapping[str, Mapping[str, Any]] = {
    **{name: row for name, row in PAPER.items() if name != "wnli"},
    "squad2.0": _README_SQUAD_2,
    "race": _row(1e-5, 32, 0.0, 12000, 1000, 512),
}


def for_classifier(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """What --preset fills in for run_classifier.py."""
    return _chosen(flags, task_key(flags["task_name"]), "task_name")


def for_squad(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """What --preset fills in for run_squad.py."""
    return _chosen(flags, f"squad{flags['version']}", "version")


def for_race(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """What --preset fills in for run_race.py."""
    return _chosen(flags, "race", "preset")


def _chosen(flags: Mapping[str, Any], name: str, flag: str) -> Mapping[str, Any]:
    if not flags["preset"]:
        return {}
    rows = {"paper": PAPER, "readme": README}[flags["preset"]]
    if name not in rows:
        raise UserError(
            f"--preset={flags['preset']} has no row for --{flag}={flags.get(flag)}: it knows {', '.join(rows)}"
        )
    return rows[name]
