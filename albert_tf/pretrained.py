"""Models on disk: reads whatever layout they came in, fills models strictly, writes Hugging Face and TF1 folders.

Every source becomes the same thing, a configuration and arrays under the released variable names (`formats`), and
every model is filled from that: an encoder variable without a value is an error.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import safetensors
import tensorflow as tf

from albert_tf import files
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError, first_line
from albert_tf.formats import hugging_face, run, tf1
from albert_tf.formats.weights import Weights, belongs_to_ffn
from albert_tf.heads import MODEL_CLASSES, AlbertModel

# Not the file functions of Python: models may lie on gs:// and the like.
gfile = tf.io.gfile


def load_pretrained(path: str, *, dtype=None) -> AlbertModel:
    """The model that a path holds: an `AlbertForPreTraining`, or the class that was fine-tuned.

    Args:
      path: see `read_weights`.
      dtype: tf_keras dtype policy of the model; None takes the global one.

    Raises:
      UserError: the path holds no model that is recognised, or an encoder variable is missing or mis-shaped.
    """
    return build_model(read_weights(path), dtype=dtype)


def build_model(weights: Weights, *, dtype=None) -> AlbertModel:
    """The model of what was found on disk.

    Raises:
      UserError: an encoder variable is missing or mis-shaped.
    """
    model = MODEL_CLASSES[weights.model_class](weights.config, dtype=dtype)
    assign_weights(model.named_variables(), weights)
    return model


def read_weights(path: str) -> Weights:
    """Configuration, arrays and vocabulary of a model.

    Args:
      path: a Hugging Face folder, a run's folder, a TF1 checkpoint's prefix, or a folder with one.

    Raises:
      UserError: the path does not exist or holds nothing that is recognised; a file is damaged.
    """
    path = str(path).rstrip("/")
    prefix = path.removesuffix(".index")
    if gfile.exists(prefix + ".index"):
        return tf1.read(prefix)
    if not gfile.isdir(path):
        raise UserError(f"{path}: no such model (a folder, or the prefix of a TF1 checkpoint)")
    if gfile.exists(os.path.join(path, hugging_face.WEIGHTS)):
        return hugging_face.read(path)
    if gfile.isdir(os.path.join(path, "checkpoints")):
        return run.read(path)
    indexes = [name for name in gfile.listdir(path) if ".ckpt" in name and name.endswith(".index")]
    if len(indexes) == 1:
        return tf1.read(os.path.join(path, indexes[0].removesuffix(".index")))
    expected = f"{hugging_face.WEIGHTS}, a run's checkpoints or one TF1 checkpoint (*.ckpt*.index)"
    raise UserError(f"{path}: expected a folder with {expected}, found {len(indexes)} checkpoints")


# --- Filling models ---


class LoadReport(NamedTuple):
    """Which variables got their values from a checkpoint.

    Attributes:
      loaded: names of the variables that did.
      initialised: names of those that keep their start values.
      ignored: names in the checkpoint that the model has not.
    """

    loaded: list[str]
    initialised: list[str]
    ignored: list[str]

    def describe(self, source: str) -> str:
        """The numbers, and the names where something does not fit, in one line."""
        parts = [f"{len(self.loaded)} loaded"]
        for what, names in (("newly initialised", self.initialised), ("ignored", self.ignored)):
            parts.append(f"{len(names)} {what}" + (f" ({', '.join(names)})" if names else ""))
        return f"variables from {source}: {', '.join(parts)}"


def assign_weights(variables: Mapping[str, tf.Variable], weights: Weights) -> LoadReport:
    """Gives variables the values that were found on disk.

    Args:
      variables: by released name.
      weights: what was found.

    Returns:
      What was loaded, what keeps its start value (outside the encoder), what was ignored.

    Raises:
      UserError: an encoder variable was not found, or one has another shape; no variable is changed then.
    """
    missing = [name for name in variables if name not in weights.arrays]
    missing_encoder = [name for name in missing if name.startswith("bert/")]
    if missing_encoder:
        raise UserError(
            f"{weights.source}: {len(missing_encoder)} of the encoder's variables are not in it,"
            f" {missing_encoder[0]} the first"
        )
    found = {name: variable for name, variable in variables.items() if name in weights.arrays}
    for name, variable in found.items():
        if tuple(variable.shape) != weights.arrays[name].shape:
            raise UserError(
                f"{weights.source}: {name} has shape {list(weights.arrays[name].shape)},"
                f" the model's configuration wants {list(variable.shape)}"
            )
    for name, variable in found.items():
        variable.assign(weights.arrays[name])
    ignored = [name for name in weights.arrays if name not in variables]
    return LoadReport(list(found), missing, ignored)


def stretched(weights: Weights, config: AlbertConfig) -> Weights:
    """The weights of a shallower model, spread over the groups of a deeper one.

    A fully shared model needs nothing but the new number of layers; group `g` of more groups starts from the source's
    group at the same relative depth (paper, footnote 5; original `init_from_group0`).

    Args:
      weights: the shallower model.
      config: the deeper model's sizes.

    Raises:
      UserError: the models differ in more than their depth, or the source is not shallower.
    """
    depth = ("num_hidden_layers", "num_hidden_groups")
    check_same_sizes(weights, config, ignored=depth)
    for field in depth:
        ours, theirs = getattr(config, field), getattr(weights.config, field)
        if theirs > ours:
            raise UserError(f"{weights.source}: {field} is {theirs}, more than the model's {ours}")
    arrays = dict(weights.arrays)
    for kind in ("attention_group_of_layer", "ffn_group_of_layer"):
        for layer in range(config.num_hidden_layers):
            source_layer = layer * weights.config.num_hidden_layers // config.num_hidden_layers
            source_group = getattr(weights.config, kind)(source_layer)
            group = getattr(config, kind)(layer)
            is_ffn = kind.startswith("ffn")
            for name, array in weights.arrays.items():
                part = name.removeprefix(f"bert/encoder/transformer/group_{source_group}/")
                if part != name and belongs_to_ffn(part) == is_ffn:
                    arrays[f"bert/encoder/transformer/group_{group}/{part}"] = array
    return dataclasses.replace(weights, config=config, arrays=arrays)


def check_same_sizes(weights: Weights, config: AlbertConfig, ignored: tuple[str, ...] = ()) -> None:
    """Checks that a checkpoint's own configuration is the one wanted, dropout rates and epsilons apart.

    Raises:
      UserError: a field differs; names it. Shapes alone would not show a wrong number of heads.
    """
    free = {"foreign", "initializer_range", *ignored}
    for field in dataclasses.fields(config):
        ours, theirs = getattr(config, field.name), getattr(weights.config, field.name)
        if field.name not in free and not field.name.endswith("dropout_prob") and ours != theirs:
            raise UserError(
                f"{weights.source}: its {field.name} is {theirs}, the model's configuration says {ours};"
                " change --model or --albert_config_file, or give another --init_checkpoint"
            )


# --- Writing ---


def save_pretrained(
    model: AlbertModel,
    folder: str,
    format: str = "hf",
    spm_model_file: str = "",
    *,
    task: Mapping[str, Any] | None = None,
) -> None:
    """Writes a model as a folder that `load_pretrained` reads.

    Args:
      model: what to write.
      folder: made if it does not exist; files of the same names are replaced once the new ones are whole.
      format: "hf", the Hugging Face layout (config.json, model.safetensors), or "tf1", the released one
        (albert_config.json, model.ckpt-best.*).
      spm_model_file: SentencePiece model to put beside it, if any.
      task: settings of the task that the model was fine-tuned for, such as `max_seq_length`.

    Raises:
      UserError: the format is unknown, or the folder cannot be written.
    """
    if format not in ("hf", "tf1"):
        raise UserError(f"format must be one of hf, tf1; got {format!r}")
    folder = str(folder)
    try:
        gfile.makedirs(folder)
        if format == "hf":
            hugging_face.write(model, folder, task or {})
        else:
            tf1.write(model, folder)
        if spm_model_file:
            name = hugging_face.VOCABULARY if format == "hf" else tf1.VOCABULARY
            files.write_bytes(os.path.join(folder, name), files.read_bytes(spm_model_file))
    except (OSError, safetensors.SafetensorError, tf.errors.OpError) as error:
        raise UserError(f"{folder}: the model cannot be written ({first_line(error)})") from None
