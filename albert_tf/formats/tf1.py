"""TF1 checkpoints, as the original released them: `albert_config.json`, `model.ckpt-best.*`, `30k-clean.model`."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.formats.weights import Weights
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForPreTraining, AlbertModel

# Not the file functions of Python: models may lie on gs:// and the like.
gfile = tf.io.gfile

_OWN_KEY = "_albert_tf"  # in the configuration, what the original does not ask for; it ignores keys
CONFIG, CHECKPOINT, VOCABULARY = "albert_config.json", "model.ckpt-best", "30k-clean.model"


def read(prefix: str) -> Weights:
    """The model of a checkpoint.

    Args:
      prefix: path of the checkpoint without ".index"; its configuration and vocabulary are looked for beside it.

    Raises:
      UserError: the configuration is missing or wrong, or the checkpoint is damaged.
    """
    config_path = os.path.join(os.path.dirname(prefix), CONFIG)
    if not gfile.exists(config_path):
        raise UserError(f"{prefix}: expected {CONFIG} beside the checkpoint, found none")
    values = files.read_json(config_path)
    own = values.pop(_OWN_KEY, {})
    vocabulary = os.path.join(os.path.dirname(prefix), VOCABULARY)
    return Weights(
        prefix,
        AlbertConfig.from_dict(values, source=config_path),
        read_arrays(prefix),
        own.get("model_class", AlbertForPreTraining.__name__),
        vocabulary if gfile.exists(vocabulary) else "",
        own.get("do_lower_case"),
        own.get("task", {}),
    )


def read_arrays(prefix: str) -> dict[str, np.ndarray]:
    """The variables of a checkpoint by name, without those of the optimiser.

    Raises:
      UserError: the checkpoint is damaged.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        return {
            name: reader.get_tensor(name)
            for name in reader.get_variable_to_shape_map()
            if not name.endswith(("/adam_m", "/adam_v")) and name != "global_step"
        }
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
        raise UserError(f"{prefix}: damaged TF1 checkpoint ({first_line(error)})") from None


def write(
    model: AlbertModel, folder: str, task: Mapping[str, Any], *, do_lower_case: bool = True
) -> None:
    """Writes a model's variables under the original's names, and its configuration.

    Args:
      model: what to write.
      folder: exists; files of the same names are replaced once the new ones are whole.
      task: settings of the task that it was fine-tuned for; empty for none.
      do_lower_case: whether its vocabulary is of lower-cased text.

    Raises:
      OSError, tf.errors.OpError: a file cannot be written.
    """
    variables = model.named_variables()
    prefix = os.path.join(folder, CHECKPOINT)
    with _written_beside(prefix) as temporary:
        tf.raw_ops.SaveV2(
            prefix=temporary,
            tensor_names=list(variables),
            shape_and_slices=[""] * len(variables),
            tensors=[tf.convert_to_tensor(variable) for variable in variables.values()],
        )
    own = {"model_class": type(model).__name__, "do_lower_case": do_lower_case, "task": dict(task)}
    values = {**model.config.to_dict(), _OWN_KEY: own}
    content = json.dumps(values, indent=2) + "\n"
    files.write_bytes(os.path.join(folder, CONFIG), content.encode())


@contextlib.contextmanager
def _written_beside(path: str) -> Iterator[str]:
    """A temporary path whose files (path and path.*) take the place of the final ones when all went well."""
    temporary = f"{path}.writing-{os.getpid()}"
    folder, start = os.path.split(temporary)

    def written() -> list[str]:
        return [name for name in gfile.listdir(folder) if name.startswith(start)]

    try:
        yield temporary
        for name in written():
            gfile.rename(
                os.path.join(folder, name), path + name.removeprefix(start), overwrite=True
            )
    finally:
        for name in written():
            gfile.remove(os.path.join(folder, name))
