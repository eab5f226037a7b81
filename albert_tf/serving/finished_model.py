"""The task for which a model was trained, and the settings with which its texts become features."""

from collections.abc import Mapping
from typing import Any

from albert_tf.core.errors import UserError, shortened
from albert_tf.formats.weights import Weights
from albert_tf.tasks import registry
from albert_tf.tasks.definition import DEFINED_IN, TaskDefinition
from albert_tf.tasks.predictor import Predictor
from albert_tf.text.settings import TextSettings

_SHORTEST_SEQUENCE = 3  # [CLS], a token, [SEP]


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


def recorded_settings(weights: Weights) -> Mapping[str, Any]:
    """The settings of the task for which a model was fine-tuned; for a run's checkpoint, from the run's config.json."""
    definition = definition_of(weights)
    if weights.run_settings:
        settings = definition.settings.of_model(weights.run_settings)
        of_text = TextSettings.names()
        return {name: value for name, value in settings.items() if name not in of_text}

    # `task_settings_of` checks the length: training wants longer sequences than other uses.
    checked = dict(weights.task_settings)
    checked.pop("max_seq_length", None)
    definition.settings.check_recorded(checked, weights.source)
    return weights.task_settings


def task_settings_of(weights: Weights, max_seq_length: int | None = None) -> dict[str, Any]:
    """`max_seq_length`, and for a fine-tuned model all settings on which its features depend."""
    limit = weights.config.max_position_embeddings
    settings = {"max_seq_length": limit, **predictor_class_of(weights).default_settings}
    settings["max_seq_length"] = min(weights.longest_sequence, settings["max_seq_length"])
    settings |= recorded_settings(weights)
    if "max_seq_length" not in weights.task_settings:
        settings["max_seq_length"] = min(weights.longest_sequence, settings["max_seq_length"])
    if max_seq_length:
        settings["max_seq_length"] = max_seq_length

    _check_threshold(settings.get("null_threshold", 0.0), weights.source)
    length = settings["max_seq_length"]
    _check_length(length, limit, weights.source)

    room = length - 3  # beside [CLS] and two [SEP]
    if settings.get("max_query_length", 0) >= room:
        # Such a sequence has no place for a context: the question gets at most half of it.
        settings["max_query_length"] = room // 2
    return settings


def _check_threshold(threshold: Any, source: str) -> None:
    if type(threshold) not in (int, float):
        reason = f"null_threshold is {shortened(threshold)}, expected a number"
        raise UserError(f"{source}: {reason}")


def _check_length(length: Any, limit: int, source: str) -> None:
    """Checks the number of tokens of a sequence, which a file or a user gave, against the model's positions."""
    if type(length) is not int or length < _SHORTEST_SEQUENCE:
        expected = f"expected at least {_SHORTEST_SEQUENCE}"
        raise UserError(f"{source}: max_seq_length is {shortened(length)}, {expected}")
    if length > limit:
        reason = f"is above max_position_embeddings of the model {source}, {limit}"
        raise UserError(f"--max_seq_length={length} {reason}")
