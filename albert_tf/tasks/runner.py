"""The program of a fine-tuning task: it parses flags, applies presets and a trained model's settings, and runs."""

import contextlib
import functools
import os
from collections.abc import Mapping, Set
from typing import Any

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.core.files import HUB_PREFIX
from albert_tf.core.program import Program
from albert_tf.formats import hub_names
from albert_tf.formats.description import Description
from albert_tf.formats.layouts import describe
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks import registry
from albert_tf.tasks.definition import TaskDefinition
from albert_tf.tasks.settings import (
    FineTuningOptimizerConfig,
    FineTuningRunConfig,
    check_fixed,
    check_length,
    contains_run,
    path_of_used_model,
    written_as_flag,
)
from albert_tf.tasks.source import check_columns


def program_of(definition: TaskDefinition, description: str = "") -> Program:
    """The program that fine-tunes for a task; it returns the content of results.json."""

    def main(run, optimizer, config) -> dict:
        check_columns(config, run)
        # Imported here, so that a wrong flag or column is an error before TensorFlow is loaded.
        from albert_tf.tasks import repeated_runs

        return repeated_runs.fine_tune(definition.task, config, run, optimizer)

    return Program(
        main=main,
        settings_classes=(FineTuningRunConfig, FineTuningOptimizerConfig, definition.settings),
        description=description,
        defaults=functools.partial(defaults, definition),
    )


def run(definition: TaskDefinition, description: str = "") -> None:
    """Fine-tunes as the command line says; ends the process after an error."""
    registry.register(definition)
    flags.in_shell(program_of(definition, description))()


def defaults(
    definition: TaskDefinition, values: Mapping[str, Any], given_names: Set[str]
) -> dict[str, Any]:
    """Values for flags that are not given.

    They are what other flags imply, the trained model's own, those of --preset, and the maximum length.
    """
    _check_intent(values, given_names)
    implied = _implied(definition, values, given_names)
    values = {**values, **implied}
    path = path_of_used_model(values)
    is_needed = not values["do_train"] or bool(definition.of_initial_model)
    if is_needed and path.startswith(HUB_PREFIX):
        path = hub_names.fetched(path)
    # TensorFlow reads remote files, so they are read only if flags depend on them.
    model = Description()
    if is_needed or "://" not in path:
        model = describe(path)
    if not values["do_train"] and model.task_name in {*registry.TASKS} - {*definition.names}:
        raise UserError(f"{path}: is a model of {model.task_name}, which another program uses")

    if is_needed and model.task_name in definition.names:
        chosen = _of_model(definition, values, given_names, model, path)
    elif definition.of_data:  # also of an evaluation, if the model names no task
        chosen = _of_data(definition, values, given_names)
    else:
        chosen = {}
    chosen = {**implied, **_preset(definition, {**values, **chosen}, given_names), **chosen}

    most = _max_position_embeddings(values, model.max_position_embeddings)
    if most and "max_seq_length" in given_names:
        check_length(values["max_seq_length"], most)
    elif most and chosen.get("max_seq_length", values["max_seq_length"]) > most:
        chosen["max_seq_length"] = most
        print(f"--max_seq_length is {most}, as the model has no more positions", flush=True)
    return chosen


def _implied(
    definition: TaskDefinition, values: Mapping[str, Any], given_names: Set[str]
) -> dict[str, Any]:
    """The values that other flags imply, for flags that are not given."""
    if not definition.implied:
        return {}
    return {
        name: value for name, value in definition.implied(values).items() if name not in given_names
    }


def _of_model(
    definition: TaskDefinition,
    values: Mapping[str, Any],
    given_names: Set[str],
    model: Description,
    path: str,
) -> dict[str, Any]:
    """The settings of a model of the task: all if it is used, those of its head if it is trained further."""
    trained = dict(definition.settings.of_model(model.settings))
    if values["do_train"]:
        kept = definition.of_initial_model
        trained = {name: trained[name] for name in kept if name in trained}
    else:
        fixed = sorted(given_names & {*definition.settings.names(of_model="fixed")})
        check_fixed({name: values[name] for name in fixed}, trained, path)

    changed = [
        name for name in trained if name not in given_names and trained[name] != values[name]
    ]
    if changed:
        shown = " ".join(written_as_flag(name, trained[name]) for name in changed)
        print(f"as {path} was trained: {shown}", flush=True)
    return trained


def _of_data(
    definition: TaskDefinition, values: Mapping[str, Any], given_names: Set[str]
) -> dict[str, Any]:
    """The settings that the data of a training or of an evaluation says."""
    assert definition.of_data
    settings = dict(definition.of_data(values, given_names))
    for name, value in settings.items():
        print(f"as the data says: {written_as_flag(name, value)}", flush=True)
    return settings


def _check_intent(values: Mapping[str, Any], given_names: Set[str]) -> None:
    """Checks that a command that only predicts or evaluates names a run, before other flags are missed."""
    of_training = {"train_file", "data_dir", "do_train", "init_checkpoint"}
    forgot = "predict_file" in given_names and not of_training & given_names
    folder = values["output_dir"]
    if not (folder and (forgot or not values["do_train"])):
        return
    if values["init_checkpoint"]:
        return
    if not contains_run(folder):
        above = os.path.dirname(folder.rstrip("/"))
        hint = f"; --output_dir={above} does" if contains_run(above) else ""
        advice = f"{hint}; --init_checkpoint names a finished model"
        raise UserError(f"--output_dir={folder}: holds no run, whose model could be used{advice}")
    if forgot:
        flags = "--do_train=false --do_eval=false --do_predict"
        raise UserError(f"--predict_file without training data needs {flags}")


def _preset(
    definition: TaskDefinition, values: Mapping[str, Any], given_names: Set[str]
) -> dict[str, Any]:
    """The values of --preset, without numbers of steps that would undo epochs or shares that are given."""
    preset = dict(definition.preset(values))
    if "num_train_epochs" in given_names:
        preset.pop("num_train_steps", None)
    if given_names & {"num_train_epochs", "warmup_proportion"}:
        preset.pop("num_warmup_steps", None)  # otherwise a share of the preset's steps
    return preset


def _max_position_embeddings(values: Mapping[str, Any], of_checkpoint: int | None) -> int | None:
    """The model's maximum sequence length, if it is known before TensorFlow is loaded; otherwise None."""
    if path := values["albert_config_file"]:
        with contextlib.suppress(UserError):  # an error in a file is reported when it is read again
            return AlbertConfig.from_json_file(path).max_position_embeddings
        return None
    if values["model"] and not values["init_checkpoint"]:
        return AlbertConfig.from_name(values["model"]).max_position_embeddings
    return of_checkpoint
