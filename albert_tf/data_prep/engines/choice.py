"""Chooses the engine that the settings name; the packages of a cluster are imported only for it."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from albert_tf.core.errors import UserError
from albert_tf.core.workers import Workers
from albert_tf.data_prep.engines.settings import DaskSettings


class MakeEngine(Protocol):
    """Makes an engine, to be used as a context manager; its `map` calls functions as `Workers.map` does."""

    def __call__(
        self,
        settings: Any,
        shared: Any,
        *,
        prepare: Callable[[Any], object] | None = None,
        common_file: str = "",
    ) -> Any:
        """Makes an engine.

        With Beam, a function must leave its result in a file, and return it from there if it is called again.

        Args:
          settings: `DaskSettings`, and for Beam `EngineSettings`.
          shared: the first argument of every call.
          prepare: is called with `shared` in a process before the first item; compiles functions, for example.
          common_file: an existing file that all workers must see, because they write beside it; "" if they do not.
        """


def engine_of(settings: DaskSettings) -> MakeEngine:
    """Makes the engine that the settings name; a `UserError` if its package is not installed."""
    if settings.runner == "local":
        return _local_engine
    if settings.runner == "dask":
        with _needs_extra(settings, "dask", "Dask"):
            from albert_tf.data_prep.engines.dask_cluster import DaskEngine
        return DaskEngine
    with _needs_extra(settings, "beam", "Apache Beam"), quiet_imports():
        from albert_tf.data_prep.engines.beam import BeamEngine
    return BeamEngine


def _local_engine(
    settings: DaskSettings,
    shared: Any,
    *,
    prepare: Callable[[Any], object] | None = None,
    common_file: str = "",
) -> Workers:
    if prepare:
        prepare(shared)  # worker processes are forked, and need not do it again
    return Workers(settings.num_workers, shared)


_CLUSTER_PACKAGES = {"apache_beam", "dask", "distributed"}


@contextlib.contextmanager
def _needs_extra(settings: DaskSettings, extra: str, name: str) -> Iterator[None]:
    """Turns the error of a package that is not installed into a line that names the extra that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _CLUSTER_PACKAGES:
            raise
        hint = f"needs {name}: pip install '.[{extra}]' in a checkout"
        raise UserError(f"--runner={settings.runner} {hint}") from None


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Hides Beam's warnings about cloud clients that are not installed."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
