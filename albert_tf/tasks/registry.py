"""The tasks known to the programs, by name: those of the library, and those of the user.

A task of the user is a module with a `DEFINITION`, which the user names (`--task_module`) or runs. No model file can
name code to import.
"""

import importlib
import importlib.util
import pathlib
import sys
from typing import Any

from albert_tf.core.errors import UserError, first_line
from albert_tf.tasks.classification.definition import DEFINITION as CLASSIFICATION
from albert_tf.tasks.definition import TaskDefinition
from albert_tf.tasks.embedding.definition import DEFINITION as EMBEDDING
from albert_tf.tasks.pretraining.definition import DEFINITION as PRETRAINING
from albert_tf.tasks.race.definition import DEFINITION as RACE
from albert_tf.tasks.squad.definition import DEFINITION as SQUAD
from albert_tf.tasks.tagging.definition import DEFINITION as TAGGING

_LIBRARY = (CLASSIFICATION, EMBEDDING, PRETRAINING, RACE, SQUAD, TAGGING)
TASKS: dict[str, TaskDefinition] = {name: task for task in _LIBRARY for name in task.names}


def register(definition: TaskDefinition) -> None:
    """Adds a task of the user; it replaces an earlier one with the same name."""
    for name in definition.names:
        if TASKS.get(name) in _LIBRARY and definition not in _LIBRARY:
            raise UserError(f"{name!r} is a task of the library; choose another name")
        TASKS[name] = definition


def register_module(name: str) -> None:
    """Imports a module of the user, by name or as the path of a Python file, and registers its `DEFINITION`."""
    try:
        if name.endswith(".py"):
            module_name = f"task_{pathlib.Path(name).stem}"
            spec: Any = importlib.util.spec_from_file_location(module_name, name)
            module = importlib.util.module_from_spec(spec)
            sys.modules[module_name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(name)
    except (ImportError, OSError) as error:
        reason = f"cannot be imported ({first_line(error)})"
        raise UserError(f"--task_module={name}: {reason}") from error
    if not isinstance(getattr(module, "DEFINITION", None), TaskDefinition):
        raise UserError(f"--task_module={name}: has no DEFINITION, a TaskDefinition")
    register(module.DEFINITION)


def find(name: str, model_class: str = "") -> TaskDefinition | None:
    """The task with a given name or, if there is none, the first task that trains a class of model."""
    definition = TASKS.get(name)
    if definition and (not model_class or model_class in definition.predictors):
        return definition
    for task in TASKS.values():
        if model_class in task.predictors:
            return task
    return None
