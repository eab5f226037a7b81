"""The tasks known to the programs, and the parts of each task that the programs use.

A task of the library is a package next to this file, with a `DEFINITION` in its `definition.py`. A task of the user is
a module with a `DEFINITION`, which the user names (`--task_module`) or runs. No model file can name code to import.
Definitions are loaded without TensorFlow: parts that need TensorFlow are given by name, as "module:name".
"""

import dataclasses
import functools
import importlib
import importlib.util
import os
import pathlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

from albert_tf.core.errors import UserError, first_line
from albert_tf.core.settings import Settings

# A class or function; or its name "module:name", which is imported when it is needed.
Reference = str | Callable
# Key in the settings of a finished model: the file that defines its task; only for tasks of users.
DEFINED_IN = "defined_in"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TaskDefinition:
    """The parts of a task that other code uses.

    Attributes:
      names: names of the task in the config.json of its models (`finetuning_task`); more than one if the data sets of
        a package are trained separately.
      settings: class of its settings, whose fields are flags of its runner.
      task: subclass of `Task`, which trains and evaluates; or a function that makes a task from its settings and the
        run's.
      predictors: name of a model class -> subclass of `Predictor`, which answers with such a model. (A module with a
        model class of its own adds it to `model.heads.MODEL_CLASSES`, and gives `signatures` for exports.)
      source: subclass of `Source`, which reads the data and makes features; None for pretraining.
      name_of: function that selects one of `names` from the values of all flags; by default, it is the first name.
      presets: value of --preset -> name among `names` -> settings.
      signatures: function (model, tokenizer, settings) -> (tf.Module, functions by name) for exports; by default, the
        function for the model class.
    """

    names: tuple[str, ...]
    settings: type[Settings]
    task: Reference
    predictors: Mapping[str, Reference]
    source: Reference | None = None
    name_of: Callable[[Mapping[str, Any]], str] | None = None
    presets: Mapping[str, Mapping[str, Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
    signatures: Reference | None = None

    def preset(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings that --preset fills in."""
        if not values["preset"]:
            return {}
        rows = self.presets.get(values["preset"], {})
        name = self.name_of(values) if self.name_of else self.names[0]
        if name not in rows:
            known = f": it knows {', '.join(rows)}" if rows else ""
            raise UserError(f"--preset={values['preset']} has no row for {name}{known}")
        return rows[name]


def resolve(reference: Reference | None) -> Any:
    """The class or function that a reference names; None for None."""
    return pkgutil.resolve_name(reference) if isinstance(reference, str) else reference


@functools.cache
def _library() -> tuple[TaskDefinition, ...]:
    packages = [
        module.name for module in pkgutil.iter_modules([os.path.dirname(__file__)]) if module.ispkg
    ]
    names = [f"{__package__}.{name}.definition" for name in packages]
    modules = [importlib.import_module(name) for name in names if importlib.util.find_spec(name)]
    return tuple(module.DEFINITION for module in modules)


_registered: dict[str, TaskDefinition] = {}  # tasks of the user, by name


def definitions() -> list[TaskDefinition]:
    """All tasks: those of the library, then those of the user."""
    return [*_library(), *dict.fromkeys(_registered.values())]


def register(definition: TaskDefinition) -> None:
    """Adds a task of the user; it replaces an earlier one with the same name."""
    if definition in _library():
        return
    for name in definition.names:
        if any(name in known.names for known in _library()):
            raise UserError(f"{name!r} is a task of the library; choose another name")
        _registered[name] = definition


def register_module(name: str) -> None:
    """Imports a module of the user, by name or as the path of a Python file, and registers its `DEFINITION`."""
    try:
        if name.endswith(".py"):
            spec: Any = importlib.util.spec_from_file_location(
                f"task_{pathlib.Path(name).stem}", name
            )
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise UserError(
            f"--task_module={name}: cannot be imported ({first_line(error)})"
        ) from error
    if not isinstance(getattr(module, "DEFINITION", None), TaskDefinition):
        raise UserError(f"--task_module={name}: has no DEFINITION, a TaskDefinition")
    register(module.DEFINITION)


def find(name: str, model_class: str = "") -> TaskDefinition | None:
    """The task with a given name or, if there is none, the first task that trains a class of model."""
    for definition in definitions():
        if name in definition.names and (not model_class or model_class in definition.predictors):
            return definition
    return next((known for known in definitions() if model_class in known.predictors), None)


def preset_rows(preset: str) -> dict[str, Mapping[str, Any]]:
    """The settings of a preset for every task that it covers, by the task's name."""
    return {
        name: row
        for definition in definitions()
        for name, row in definition.presets.get(preset, {}).items()
    }


def file_of(cls: type) -> str:
    """Name of the file that defines a class of the user; "" for a class of the library."""
    is_own = not cls.__module__.startswith("albert_tf.")
    return os.path.basename(getattr(sys.modules[cls.__module__], "__file__", "")) if is_own else ""
