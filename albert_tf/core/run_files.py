"""A run's checkpoints and their records: files that several packages read."""

import os
import re
from typing import Any

from albert_tf.core import checksums, files
from albert_tf.core.errors import UserError

RUN_ID = "run_id"  # an entry of the JSON files of a run
_STATE_FILE = "checkpoint"  # TensorFlow's list of the checkpoints in a folder


def folder_of(checkpoint: str) -> str:
    """The folder of the run that wrote a checkpoint; "" if no run did."""
    match = re.fullmatch(r"(?:(.*)/)?checkpoints(?:/best)?/[^/]+", checkpoint)
    folder = (match[1] or ".") if match else ""
    return folder if folder and files.exists(os.path.join(folder, "config.json")) else ""


def checkpoints(folder: str) -> list[str]:
    """The paths of the complete checkpoints in a folder, without their suffixes, oldest first.

    A checkpoint is complete if it has a record, or if TensorFlow's list contains it. Where there is neither record nor
    list, every checkpoint counts.
    """
    try:
        names = files.names_in(folder)
    except OSError:
        return []
    try:
        state = files.read_bytes(os.path.join(folder, _STATE_FILE)).decode(errors="replace")
    except UserError:
        state = ""
    listed = {
        os.path.basename(path) for path in re.findall(r'model_checkpoint_paths?: "(.*)"', state)
    }
    recorded = {name.removesuffix(".json") for name in names}
    indexes = re.findall(r"^(step-(\d+))\.index$", "\n".join(names), re.MULTILINE)
    found = {name: int(step) for name, step in indexes}
    complete = [name for name in found if name in listed | recorded] or found
    return [os.path.join(folder, name) for name in sorted(complete, key=found.__getitem__)]


def state_content(names: list[str]) -> bytes:
    """The content of TensorFlow's list of the checkpoints in a folder, the newest last."""
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    return ("\n".join(lines) + "\n").encode()


def checkpoint_record(path: str, run_id: str | None) -> dict[str, Any]:
    """The record of a checkpoint, after checking that it belongs to the checkpoint; empty if there is none.

    The record has the checksum of the checkpoint's index. The index has the checksums of all tensors, which TensorFlow
    checks when it reads them. The run `run_id` must have written it; None accepts any run.
    """
    record_file = path + ".json"
    if not files.exists(record_file):
        return {}
    record = checksums.read_json(record_file)
    if run_id and record.get(RUN_ID, run_id) != run_id:
        raise UserError(f"{record_file}: belongs to another run")
    if record.get("index_sha256") != index_sha256(path):
        raise UserError(f"{path}.index: was changed after it was written")
    return record


def index_sha256(path: str) -> str:
    """The checksum of the index of a checkpoint."""
    return files.sha256(path + ".index")
