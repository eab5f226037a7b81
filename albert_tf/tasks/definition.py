"""What a task tells the programs about itself. A definition loads without TensorFlow."""

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Any

from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings

if TYPE_CHECKING:
    from albert_tf.tasks.predictor import Predictor
    from albert_tf.tasks.source import Source


# Key in the settings of a finished model: the file that defines its task; only for tasks of users.
DEFINED_IN = "defined_in"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TaskDefinition:
    """The parts of a task that other code uses."""

    # Names of the task in the config.json of its models (`finetuning_task`); several for data sets that are trained
    # separately. `name_of` selects one of them from the values of all flags; by default, it is the first.
    names: tuple[str, ...]
    settings: type[Settings]  # whose fields are flags of its program
    # Makes the `Task`, which trains and evaluates, from the settings and the run's; imports TensorFlow.
    task: Callable[..., Any]
    # Name of a model class -> class that answers with such a model. (A module with a model class of its own adds it to
    # `model.heads.MODEL_CLASSES`, and gives `signatures` for exports.)
    predictors: Mapping[str, type["Predictor"]]
    source: type["Source"] | None = None  # reads the data and makes features; None for pretraining
    name_of: Callable[[Mapping[str, Any]], str] | None = None
    # From the values of all flags: values of others that these imply, if they are not given.
    implied: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    # From the values of all flags and the names of those that are given: values of others, read from the data.
    of_data: Callable[[Mapping[str, Any], Set[str]], Mapping[str, Any]] | None = None
    # Settings that training takes from an initial model of the same task, if their flags are not given.
    of_initial_model: tuple[str, ...] = ()
    # Value of --preset -> name among `names` -> settings.
    presets: Mapping[str, Mapping[str, Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
    # (model, tokenizer, settings) -> (tf.Module, functions by name) for exports; by default, that of the model class.
    signatures: Callable | None = None

    def preset(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings that --preset fills in."""
        if not values["preset"]:
            return {}
        rows = self.presets.get(values["preset"], {})
        name = self.name_of(values) if self.name_of else self.names[0]
        if name not in rows:
            hint = f": it knows {', '.join(rows)}" if rows else ""
            raise UserError(f"--preset={values['preset']} has no row for {name}{hint}")
        return rows[name]


def imported(module: str, name: str) -> Callable[..., Any]:
    """A function or class of a module that is imported when it is called, as TensorFlow takes seconds to load."""
    return lambda *arguments: getattr(importlib.import_module(module), name)(*arguments)


def file_of(cls: type) -> str:
    """Name of the file that defines a class of the user; "" for a class of the library."""
    is_own = not cls.__module__.startswith("albert_tf.")
    return os.path.basename(getattr(sys.modules[cls.__module__], "__file__", "")) if is_own else ""
