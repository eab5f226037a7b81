"""Folders of SetFit: an embedder of sentence-transformers, and beside it a head that is a pickle."""

import os

from absl import logging

from albert_tf.core import files
from albert_tf.core.errors import shortened

_CONFIG = "config_setfit.json"
_HEADS = ("model_head.pkl", "model_head.safetensors")


def remark_on_head(folder: str) -> None:
    """Says that the head of a SetFit folder is not read, as a pickle can run any code; nothing for other folders."""
    heads = [name for name in _HEADS if files.exists(os.path.join(folder, name))]
    path = os.path.join(folder, _CONFIG)
    if not heads and not files.exists(path):
        return
    labels = files.read_json(path).get("labels") if files.exists(path) else None
    of_labels = f" of the labels {shortened(labels)}" if labels else ""
    head = heads[0] if heads else "model_head.pkl"
    logging.warning(
        "%s: is a SetFit model; its head %s%s is not read, as a pickle can run any code, and texts get vectors, not"
        " labels; for labels, train a head: albert-tf classify --train_head_only --init_checkpoint=%s",
        folder,
        head,
        of_labels,
        folder,
    )
