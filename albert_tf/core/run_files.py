"""A run's checkpoints: files that several packages read."""

import os
import re

from albert_tf.core import files


def folder_of(checkpoint: str) -> str:
    """The folder of the run that wrote a checkpoint; "" if no run did."""
    match = re.fullmatch(r"(?:(.*)/)?checkpoints(?:/best)?/[^/]+", checkpoint)
    folder = (match[1] or ".") if match else ""
    return folder if folder and files.exists(os.path.join(folder, "config.json")) else ""


def newest_checkpoint(folder: str) -> str:
    """The path of the newest complete checkpoint in a folder, without its suffixes; "" if there is none."""
    import tensorflow as tf

    state = tf.train.get_checkpoint_state(folder)
    paths = reversed(state.all_model_checkpoint_paths if state else ())
    return next((path for path in paths if files.exists(f"{path}.index")), "")
