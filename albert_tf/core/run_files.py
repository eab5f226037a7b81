"""A run's checkpoints: files that several packages read."""

import os
import re

from albert_tf.core import files

_STATE_FILE = "checkpoint"  # TensorFlow's list of the checkpoints in a folder, the newest last


def folder_of(checkpoint: str) -> str:
    """The folder of the run that wrote a checkpoint; "" if no run did."""
    match = re.fullmatch(r"(?:(.*)/)?checkpoints(?:/best)?/[^/]+", checkpoint)
    folder = (match[1] or ".") if match else ""
    return folder if folder and files.exists(os.path.join(folder, "config.json")) else ""


def checkpoints(folder: str) -> list[str]:
    """The paths of the complete checkpoints in a folder, without their suffixes, oldest first."""
    state = os.path.join(folder, _STATE_FILE)
    text = files.read_bytes(state).decode(errors="replace") if files.exists(state) else ""
    names = re.findall(r'^all_model_checkpoint_paths: "(.*)"', text, re.MULTILINE)
    paths = [os.path.join(folder, os.path.basename(name)) for name in names]
    return [path for path in paths if files.exists(f"{path}.index")]
