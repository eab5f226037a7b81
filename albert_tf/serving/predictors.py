"""Loads a finished model with its vocabulary and settings as a `Predictor`; ONNX exports need no TensorFlow."""

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

from albert_tf.core.errors import UserError, shortened
from albert_tf.core.files import HUB_PREFIX, AnyPath
from albert_tf.formats import description
from albert_tf.formats.weights import Weights
from albert_tf.serving import onnx_model
from albert_tf.tasks import registry
from albert_tf.tasks.definition import DEFINED_IN, TaskDefinition
from albert_tf.tasks.predictor import Predictor
from albert_tf.text.sequences import SHORTEST_SEQUENCE
from albert_tf.text.settings import TextSettings
from albert_tf.text.tokenizer import Tokenizer

_SHORTEST_SEQUENCE = 3  # [CLS], a token, [SEP]


def load_predictor(
    path: AnyPath,
    *,
    spm_model_file: AnyPath = "",
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
    batch_size: int = 32,
    num_hidden_layers: int | None = None,
) -> Predictor:
    """Loads a finished model of any task, which answers texts.

    `load_predictor(path).predict(texts)` returns a dictionary for each text: label and probabilities, a score, the
    answer to a question, filled masks, or an embedding.

    Example:
      [answer] = load_predictor("models/albert-tiny-docs").predict(["Returns the [MASK] of it."])
      answer["masks"][0][0]["token"]  # "▁name"
      albert = load_predictor("models/albert-minilm-l6")
      albert.similarity(["a cat"], ["a dog", "the tax law"])  # cosines, float32 [1, 2]

    A predictor can be copied and pickled; the copy loads the same path again. In a process that is forked later, only
    the predictor of an ONNX export answers.

    Args:
      path: the model, in any layout that `load_pretrained` takes; or an ONNX export, folder or file, which is computed
        without TensorFlow.
      spm_model_file: its vocabulary, a SentencePiece model or vocab.txt, if none came with it.
      do_lower_case: whether text is lower-cased; None uses the value in the model's folder, or true if it has none.
      max_seq_length: maximum number of tokens of a sequence; None uses that of the fine-tuning, or the model's maximum.
      num_hidden_layers: see `load_pretrained`.

    Raises:
      UserError: there is no such model, or no vocabulary for it; its task is unknown; or the length is above the
        model's maximum.
    """
    counts = [("max_seq_length", max_seq_length, SHORTEST_SEQUENCE), ("batch_size", batch_size, 1)]
    for name, value, least in counts:
        if value is not None and (not isinstance(value, int) or value < least):
            raise UserError(f"{name} must be an integer of at least {least}, got {value!r}")
    is_onnx = onnx_model.is_export(str(path))
    if is_onnx:
        if num_hidden_layers:
            reason = "the layers of an ONNX export cannot be changed; export it again"
            raise UserError(f"{path}: {reason}")
        weights, onnx = onnx_model.read(str(path))
    else:
        description.check_is_there(str(path).rstrip("/"))  # without TensorFlow
        from albert_tf.formats import pretrained

        weights = pretrained.read_weights(path, num_hidden_layers)
    tokenizer = tokenizer_of(weights, spm_model_file, do_lower_case)
    settings = task_settings_of(weights, max_seq_length)
    predictor_class = predictor_class_of(weights)
    arguments = tokenizer, settings, batch_size
    if is_onnx:
        predictor = predictor_class(onnx, *arguments, weights.left_out, compute=onnx)
    else:
        from albert_tf.tasks.compiled import Compiled

        model, report = pretrained.build_model(weights)
        compute = Compiled(model)
        predictor = predictor_class(model, *arguments, report.initialized, compute=compute)
    # Another process may have another current folder.
    predictor.loaded_from = functools.partial(
        load_predictor,
        _absolute(path),
        spm_model_file=_absolute(spm_model_file),
        do_lower_case=do_lower_case,
        max_seq_length=max_seq_length,
        batch_size=batch_size,
        num_hidden_layers=num_hidden_layers,
    )
    return predictor


def _absolute(path: AnyPath) -> str:
    """A path from the root; names on the hub, remote paths and "" stay."""
    path = str(path)
    is_local = path and "://" not in path and not path.startswith(HUB_PREFIX)
    return os.path.abspath(path) if is_local else path


def load_tokenizer(path: AnyPath, do_lower_case: bool | None = None) -> Tokenizer:
    """See `Tokenizer.from_pretrained`."""
    from albert_tf.formats import pretrained

    weights = pretrained.read_weights(path)
    # For a tokenizer alone, "[SEP]" in a text is text, whoever made the model.
    rules = dataclasses.replace(weights.rules, finds_special_tokens=False)
    weights = dataclasses.replace(weights, rules=rules)
    tokenizer = tokenizer_of(weights, do_lower_case=do_lower_case)
    tokenizer.max_length = _longest(weights)
    return tokenizer


def definition_of(weights: Weights) -> TaskDefinition:
    """The task for which a model was trained; a task of the user must be registered."""
    name = weights.config.foreign.get("finetuning_task") or ""
    definition = registry.find(name, weights.model_class)
    module = weights.task_settings.get(DEFINED_IN)
    if not definition or (module and name not in definition.names):
        advice = "name the file with --task_module, after a look into it: its code is run"
        raise UserError(f"{weights.source}: is for the task {name!r} of {module}; {advice}")
    return definition


def predictor_class_of(weights: Weights) -> type[Predictor]:
    """The class of predictors for a model; for errors see `definition_of`."""
    return definition_of(weights).predictors[weights.model_class]


def tokenizer_of(
    weights: Weights, spm_model_file: AnyPath = "", do_lower_case: bool | None = None
) -> Tokenizer:
    """The vocabulary with which a model was trained."""
    path = spm_model_file or weights.vocabulary
    if not path:
        reason = "no vocabulary came with this model; name it with --spm_model_file or --vocab_file"
        raise UserError(f"{weights.source}: {reason} (in Python: Tokenizer.from_file)")
    cleaning = weights.cleaning
    if do_lower_case is not None:
        cleaning["do_lower_case"] = do_lower_case
    tokenizer = Tokenizer.from_file(path, **cleaning, rules=weights.rules)
    tokenizer.max_length = weights.max_length
    if tokenizer.vocab_size != weights.config.vocab_size:
        reason = f"the model {weights.source} has vocab_size {weights.config.vocab_size}"
        raise UserError(f"{path}: has {tokenizer.vocab_size} tokens, but {reason}; name its own")
    return tokenizer


def _longest(weights: Weights) -> int:
    """The most tokens of a sequence, by the model's positions and its tokenizer's files."""
    most = weights.config.max_position_embeddings
    return min(most, weights.max_length or most)


def recorded_settings(weights: Weights) -> Mapping[str, Any]:
    """The settings of the task for which a model was fine-tuned; for a run's checkpoint, from the run's config.json."""
    known = description.describe(weights.source)
    if weights.task_settings or not known.task_name:
        # `task_settings_of` checks the length: training wants longer sequences than other uses.
        others = {
            name: value for name, value in weights.task_settings.items() if name != "max_seq_length"
        }
        definition_of(weights).settings.check_recorded(others, weights.source)
        return weights.task_settings
    settings = definition_of(weights).settings.of_model(known.settings)
    return {name: value for name, value in settings.items() if name not in TextSettings.names()}


def task_settings_of(weights: Weights, max_seq_length: int | None = None) -> dict[str, Any]:
    """`max_seq_length`, and for a fine-tuned model all settings on which its features depend."""
    limit = weights.config.max_position_embeddings
    settings = {"max_seq_length": limit, **predictor_class_of(weights).default_settings}
    settings["max_seq_length"] = min(_longest(weights), settings["max_seq_length"])
    settings |= recorded_settings(weights)
    if "max_seq_length" not in weights.task_settings:
        settings["max_seq_length"] = min(_longest(weights), settings["max_seq_length"])
    threshold = settings.get("null_threshold", 0.0)
    if type(threshold) not in (int, float):
        reason = f"null_threshold is {shortened(threshold)}, expected a number"
        raise UserError(f"{weights.source}: {reason}")
    length = settings["max_seq_length"] = max_seq_length or settings["max_seq_length"]
    if type(length) is not int or length < _SHORTEST_SEQUENCE:
        expected = f"expected at least {_SHORTEST_SEQUENCE}"
        raise UserError(f"{weights.source}: max_seq_length is {shortened(length)}, {expected}")
    if length > limit:
        reason = f"is above max_position_embeddings of the model {weights.source}, {limit}"
        raise UserError(f"--max_seq_length={length} {reason}")
    room = length - 3  # beside [CLS] and two [SEP]
    if settings.get("max_query_length", 0) >= room:
        # Such a sequence has no place for a context: the question gets at most half of it.
        settings["max_query_length"] = room // 2
    return settings
