"""Models on disk: reads released TF1 checkpoints, Hugging Face folders and runs; writes Hugging Face and TF1.

Every source becomes the same thing, a configuration and arrays under the released variable names, and every
model is filled from that, strictly: an encoder variable without a value is an error.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError, first_line
from albert_tf.heads import MODEL_CLASSES, AlbertForPreTraining, AlbertModel

# Not the file functions of Python: models may lie on gs:// and the like.
gfile = tf.io.gfile

HF_WEIGHTS, HF_CONFIG, SPIECE = "model.safetensors", "config.json", "spiece.model"
TF1_CONFIG, TF1_CHECKPOINT, TF1_SPIECE = (
    "albert_config.json",
    "model.ckpt-best",
    "30k-clean.model",
)


@dataclasses.dataclass(frozen=True)
class Weights:
    """A model as it was found on disk.

    Attributes:
      source: where it was found, for messages.
      config: its sizes.
      arrays: float arrays by released variable name.
      model_class: name of the class in `heads.py` that they are of.
    """

    source: str
    config: AlbertConfig
    arrays: Mapping[str, np.ndarray]
    model_class: str = "AlbertForPreTraining"

    def without_head(self) -> "Weights":
        """The encoder alone."""
        arrays = {name: array for name, array in self.arrays.items() if name.startswith("bert/")}
        return dataclasses.replace(self, arrays=arrays)


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


def load_pretrained(path: str, *, dtype=None) -> AlbertModel:
    """The model that a path holds: an `AlbertForPreTraining`, or the class that was fine-tuned.

    Args:
      path: a Hugging Face folder, a run's folder, a TF1 checkpoint's prefix, or a folder with one.
      dtype: tf_keras dtype policy of the model; None takes the global one.

    Raises:
      UserError: the path holds no model that is recognised, or an encoder variable is missing or mis-shaped.
    """
    weights = read_weights(path)
    model = MODEL_CLASSES[weights.model_class](weights.config, dtype=dtype)
    assign_weights(model.named_variables(), weights)
    return model


def vocabulary_beside(path: str) -> str:
    """The SentencePiece model in the folder of a model, of a run or of a TF1 checkpoint; "" if there is none."""
    path = str(path).rstrip("/")
    folders = (path, os.path.join(path, "model")) if gfile.isdir(path) else (os.path.dirname(path),)
    for folder in folders:
        for name in (SPIECE, TF1_SPIECE):
            if gfile.exists(os.path.join(folder, name)):
                return os.path.join(folder, name)
    return ""


def read_weights(path: str) -> Weights:
    """Configuration and arrays of whatever `load_pretrained` recognises.

    Raises:
      UserError: the path does not exist or holds nothing that is recognised; a file is damaged.
    """
    path = str(path).rstrip("/")
    prefix = path.removesuffix(".index")
    if gfile.exists(prefix + ".index"):
        return _read_tf1(prefix)
    if not gfile.isdir(path):
        raise UserError(f"{path}: no such model (a folder, or the prefix of a TF1 checkpoint)")
    if gfile.exists(os.path.join(path, HF_WEIGHTS)):
        return _read_hugging_face(path)
    if gfile.isdir(os.path.join(path, "checkpoints")):
        return _read_run(path)
    indexes = [name for name in gfile.listdir(path) if ".ckpt" in name and name.endswith(".index")]
    if len(indexes) == 1:
        return _read_tf1(os.path.join(path, indexes[0].removesuffix(".index")))
    expected = f"{HF_WEIGHTS}, a run's checkpoints or one TF1 checkpoint (*.ckpt*.index)"
    raise UserError(f"{path}: expected a folder with {expected}, found {len(indexes)} checkpoints")


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
                if part != name and _belongs_to_ffn(part) == is_ffn:
                    arrays[f"bert/encoder/transformer/group_{group}/{part}"] = array
    return dataclasses.replace(weights, config=config, arrays=arrays)


def _belongs_to_ffn(name: str) -> bool:
    return "/ffn_1/" in name or "/LayerNorm_1/" in name


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


# --- TF1 checkpoints, as released ---


def _read_tf1(prefix: str) -> Weights:
    config_path = os.path.join(os.path.dirname(prefix), TF1_CONFIG)
    if not gfile.exists(config_path):
        raise UserError(f"{prefix}: expected {TF1_CONFIG} beside the checkpoint, found none")
    config = AlbertConfig.from_dict(_read_json(config_path), source=config_path)
    try:
        reader = tf.train.load_checkpoint(prefix)
        arrays = {
            name: reader.get_tensor(name)
            for name in reader.get_variable_to_shape_map()
            if not name.endswith(("/adam_m", "/adam_v")) and name != "global_step"
        }
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
        raise UserError(f"{prefix}: damaged TF1 checkpoint ({first_line(error)})") from None
    return Weights(prefix, config, arrays)


def _write_tf1(model: AlbertModel, folder: str) -> None:
    variables = model.named_variables()
    prefix = os.path.join(folder, TF1_CHECKPOINT)
    with _written_beside(prefix) as temporary:
        tf.raw_ops.SaveV2(
            prefix=temporary,
            tensor_names=list(variables),
            shape_and_slices=[""] * len(variables),
            tensors=[tf.convert_to_tensor(variable) for variable in variables.values()],
        )
    _write_whole(os.path.join(folder, TF1_CONFIG), model.config.to_json_string().encode())


# --- Runs ---


def _read_run(folder: str) -> Weights:
    """The model of a run: of its newest checkpoint, or the model folder of a finished fine-tuning run (its best)."""
    settings = _read_json(os.path.join(folder, "config.json"))
    try:
        config = AlbertConfig.from_dict(settings["model"], source=folder)
    except KeyError as error:
        raise UserError(f"{folder}: expected a run's config.json ({first_line(error)})") from None
    model_class = settings.get("head", {}).get("model_class", AlbertForPreTraining.__name__)
    model_folder = os.path.join(folder, "model")
    if model_class != AlbertForPreTraining.__name__ and gfile.exists(
        os.path.join(model_folder, HF_WEIGHTS)
    ):
        return _read_hugging_face(model_folder)
    checkpoint = tf.train.latest_checkpoint(os.path.join(folder, "checkpoints"))
    if checkpoint is None:
        raise UserError(f"{folder}: the run has no checkpoint yet")
    model = MODEL_CLASSES[model_class](config, dtype="float32")
    try:
        restored = tf.train.Checkpoint(model=model).restore(checkpoint)
        restored.assert_existing_objects_matched().expect_partial()
    except (tf.errors.OpError, AssertionError, ValueError) as error:
        raise UserError(f"{checkpoint}: damaged checkpoint ({first_line(error)})") from None
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    return Weights(checkpoint, config, arrays, model_class)


# --- Hugging Face folders ---

# Released name inside a block -> Hugging Face's. "kernel" matrices are transposed there.
_HF_BLOCK_NAMES = {
    "attention_1/self/query/kernel": "attention.query.weight",
    "attention_1/self/query/bias": "attention.query.bias",
    "attention_1/self/key/kernel": "attention.key.weight",
    "attention_1/self/key/bias": "attention.key.bias",
    "attention_1/self/value/kernel": "attention.value.weight",
    "attention_1/self/value/bias": "attention.value.bias",
    "attention_1/output/dense/kernel": "attention.dense.weight",
    "attention_1/output/dense/bias": "attention.dense.bias",
    "LayerNorm/gamma": "attention.LayerNorm.weight",
    "LayerNorm/beta": "attention.LayerNorm.bias",
    "ffn_1/intermediate/dense/kernel": "ffn.weight",
    "ffn_1/intermediate/dense/bias": "ffn.bias",
    "ffn_1/intermediate/output/dense/kernel": "ffn_output.weight",
    "ffn_1/intermediate/output/dense/bias": "ffn_output.bias",
    "LayerNorm_1/gamma": "full_layer_layer_norm.weight",
    "LayerNorm_1/beta": "full_layer_layer_norm.bias",
}
_HF_NAMES = {
    "bert/embeddings/word_embeddings": "albert.embeddings.word_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "albert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "albert.embeddings.position_embeddings.weight",
    "bert/embeddings/LayerNorm/gamma": "albert.embeddings.LayerNorm.weight",
    "bert/embeddings/LayerNorm/beta": "albert.embeddings.LayerNorm.bias",
    "bert/encoder/embedding_hidden_mapping_in/kernel": "albert.encoder.embedding_hidden_mapping_in.weight",
    "bert/encoder/embedding_hidden_mapping_in/bias": "albert.encoder.embedding_hidden_mapping_in.bias",
    "bert/pooler/dense/kernel": "albert.pooler.weight",
    "bert/pooler/dense/bias": "albert.pooler.bias",
    "cls/predictions/transform/dense/kernel": "predictions.dense.weight",
    "cls/predictions/transform/dense/bias": "predictions.dense.bias",
    "cls/predictions/transform/LayerNorm/gamma": "predictions.LayerNorm.weight",
    "cls/predictions/transform/LayerNorm/beta": "predictions.LayerNorm.bias",
    "cls/predictions/output_bias": "predictions.bias",
    "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
    "cls/seq_relationship/output_bias": "sop_classifier.classifier.bias",
}
_HF_HEAD_NAMES = {
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}
_OWN_PREFIX = "albert_tf."  # of tensors that no model of theirs has
_HF_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"


def _hf_num_groups(config: AlbertConfig) -> int:
    """Groups of the Hugging Face model that computes the same: ours, or one a layer where theirs cannot follow."""
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    theirs = [int(layer / (layers / groups)) for layer in range(layers)]
    for group_of_layer in (config.attention_group_of_layer, config.ffn_group_of_layer):
        if theirs != [group_of_layer(layer) for layer in range(layers)]:
            return layers
    return groups


def _hf_to_released(config: AlbertConfig) -> dict[str, str]:
    """Hugging Face name -> released name, for every tensor that their model of this configuration has."""
    names = {theirs: ours for ours, theirs in (_HF_NAMES | _HF_HEAD_NAMES).items()}
    num_groups = _hf_num_groups(config)
    for group in range(num_groups):
        # The first layer of a group of theirs tells which of our copies it holds.
        layer = next(
            layer
            for layer in range(config.num_hidden_layers)
            if int(layer / (config.num_hidden_layers / num_groups)) == group
        )
        attention_group = config.attention_group_of_layer(layer)
        ffn_group = config.ffn_group_of_layer(layer)
        for inner in range(config.inner_group_num):
            for ours, theirs in _HF_BLOCK_NAMES.items():
                own_group = ffn_group if _belongs_to_ffn("/" + ours) else attention_group
                hf_name = (
                    f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}.{theirs}"
                )
                names[hf_name] = (
                    f"bert/encoder/transformer/group_{own_group}/inner_group_{inner}/{ours}"
                )
    return names


def _read_hugging_face(folder: str) -> Weights:
    path = os.path.join(folder, HF_CONFIG)
    values = _read_json(path)
    own = values.pop("albert_tf", {})
    if values.get("model_type", "albert") != "albert":
        raise UserError(f"{path}: model_type is {values['model_type']!r}, expected 'albert'")
    sizes = {name: value for name, value in own.items() if name != "model_class"}
    config = AlbertConfig.from_dict({**values, **sizes}, source=path)
    path = os.path.join(folder, HF_WEIGHTS)
    try:
        with gfile.GFile(path, "rb") as file:
            tensors = safetensors.numpy.load(file.read())
    except (tf.errors.OpError, safetensors.SafetensorError) as error:
        raise UserError(f"{path}: damaged safetensors file ({first_line(error)})") from None
    arrays = {}
    for hf_name, name in _hf_to_released(config).items():
        if hf_name in tensors:
            array = tensors[hf_name].astype(np.float32)
            arrays[name] = array.T if name.endswith("/kernel") else array
    for hf_name, array in tensors.items():
        if hf_name.startswith(_OWN_PREFIX):
            arrays[hf_name.removeprefix(_OWN_PREFIX)] = array.astype(np.float32)
    if config.embedding_size == config.hidden_size:
        _drop_identity_projection(arrays, path)
    return Weights(folder, config, arrays, own.get("model_class") or _class_of(values))


def _class_of(hf_config: Mapping) -> str:
    """Name of our class for a model of theirs."""
    theirs = (hf_config.get("architectures") or [""])[0]
    ours = [name for name, cls in MODEL_CLASSES.items() if cls.hf_architecture == theirs]
    return ours[0] if ours and theirs else AlbertForPreTraining.__name__


def _drop_identity_projection(arrays: dict[str, np.ndarray], path: str) -> None:
    """Takes out the projection that Hugging Face models have even where E = D.

    Raises:
      UserError: it is not the identity.
    """
    kernel = arrays.pop("bert/encoder/embedding_hidden_mapping_in/kernel", None)
    bias = arrays.pop("bert/encoder/embedding_hidden_mapping_in/bias", None)
    if kernel is not None and (np.any(kernel != np.eye(len(kernel))) or np.any(bias)):
        raise UserError(
            f"{path}: {_HF_PROJECTION} is not the identity, though E = D has no projection"
        )


def _write_hugging_face(model: AlbertModel, folder: str) -> None:
    config, variables = model.config, model.named_variables()
    tensors, written = {}, set()
    for hf_name, name in _hf_to_released(config).items():
        if name in variables:
            array = variables[name].numpy()
            tensors[hf_name] = np.ascontiguousarray(array.T if name.endswith("/kernel") else array)
            written.add(name)
    for name in variables.keys() - written:
        tensors[_OWN_PREFIX + name] = variables[name].numpy()
    if config.embedding_size == config.hidden_size:
        tensors[f"{_HF_PROJECTION}.weight"] = np.eye(config.hidden_size, dtype=np.float32)
        tensors[f"{_HF_PROJECTION}.bias"] = np.zeros([config.hidden_size], np.float32)
    data = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    _write_whole(os.path.join(folder, HF_WEIGHTS), data)
    values = {
        **config.to_dict(),
        "architectures": [model.hf_architecture] if model.hf_architecture else [],
        "model_type": "albert",
        "hidden_act": {"gelu": "gelu_new"}.get(config.hidden_act, config.hidden_act),
        "num_hidden_groups": _hf_num_groups(config),
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        # What their configuration cannot say.
        "albert_tf": {
            "share_parameters": config.share_parameters,
            "num_hidden_groups": config.num_hidden_groups,
            "model_class": type(model).__name__,
        },
    }
    del values["share_parameters"]
    _write_whole(os.path.join(folder, HF_CONFIG), json.dumps(values, indent=2).encode() + b"\n")


# --- Writing ---


def save_pretrained(
    model: AlbertModel, folder: str, format: str = "hf", spm_model_file: str = ""
) -> None:
    """Writes a model as a folder that `load_pretrained` reads.

    Args:
      model: what to write.
      folder: made if it does not exist; files of the same names are replaced once the new ones are whole.
      format: "hf", the Hugging Face layout (config.json, model.safetensors), or "tf1", the released one
        (albert_config.json, model.ckpt-best.*).
      spm_model_file: SentencePiece model to put beside it, if any.

    Raises:
      UserError: the format is unknown, or the folder cannot be written.
    """
    writers = {"hf": _write_hugging_face, "tf1": _write_tf1}
    if format not in writers:
        raise UserError(f"format must be one of {', '.join(writers)}; got {format!r}")
    try:
        gfile.makedirs(folder)
        writers[format](model, folder)
        if spm_model_file:
            name = SPIECE if format == "hf" else TF1_SPIECE
            with gfile.GFile(spm_model_file, "rb") as file:
                _write_whole(os.path.join(folder, name), file.read())
    except (OSError, safetensors.SafetensorError, tf.errors.OpError) as error:
        raise UserError(f"{folder}: the model cannot be written ({first_line(error)})") from None


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


def _write_whole(path: str, data: bytes) -> None:
    with _written_beside(path) as temporary, gfile.GFile(temporary, "wb") as file:
        file.write(data)


def _read_json(path: str) -> dict:
    try:
        with gfile.GFile(path) as file:
            values = json.load(file)
    except (tf.errors.OpError, ValueError) as error:
        raise UserError(f"{path}: cannot read it ({first_line(error)})") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(values).__name__}")
    return values
