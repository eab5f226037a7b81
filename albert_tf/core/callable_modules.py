"""Modules of programs that can be called: `albert_tf.fold` is a module, and `albert_tf.fold(model)` runs its function.

Python sets a package's attribute to the module when somebody imports `albert_tf.fold`, so a function of this name would
be hidden then. The class of a module may be changed (Python's reference, "Customizing module attribute access").
"""

import sys
import types
from collections.abc import Callable
from typing import Any


def make_callable(module_name: str, function: Callable[[], Callable]) -> None:
    """Lets calls of a module run a function, which `function` makes when it is first needed.

    `inspect.signature` of the module is that of the function, which is its `__wrapped__`.
    """
    if module_name == "__main__":  # run as a script, which nobody calls
        return

    class CallableModule(types.ModuleType):
        """A module of a program, which is also its function."""

        @property
        def __wrapped__(self) -> Callable:
            return function()

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return function()(*args, **kwargs)

    sys.modules[module_name].__class__ = CallableModule
