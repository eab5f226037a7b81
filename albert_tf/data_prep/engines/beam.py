"""The engine on Apache Beam: one pipeline for each map, on the runner that the settings name."""

import concurrent.futures
import contextlib
import functools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from albert_tf.core.errors import UserError
from albert_tf.data_prep.engines.settings import EngineSettings

_FILES_READ_TOGETHER = 64  # remote ones answer slowly


class BeamEngine(contextlib.AbstractContextManager):
    """Maps as `Workers` does, each time with a pipeline on the runner that the settings name."""

    def __init__(
        self,
        settings: EngineSettings,
        shared: Any,
        *,
        # Not called: a worker compiles functions at its first item.
        prepare: Callable[[Any], object] | None = None,
        common_file: str = "",
    ):
        self._settings = settings
        self._shared = shared

    def __exit__(self, *_error: object) -> None:
        pass

    def map(self, function: Callable[[Any, Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yields `function(shared, item)` for every item, in order; the function must leave its result in a file."""
        items = list(items)
        pipeline = apache_beam.Pipeline(options=pipeline_options(self._settings))
        spread = pipeline | apache_beam.Create(items) | apache_beam.Reshuffle()
        _ = spread | apache_beam.Map(_call, function, self._shared)
        _run(pipeline)
        with concurrent.futures.ThreadPoolExecutor(_FILES_READ_TOGETHER) as pool:
            yield from pool.map(functools.partial(function, self._shared), items)


def _call(item: Any, function: Callable[[Any, Any], Any], shared: Any) -> None:
    function(shared, item)


def pipeline_options(settings: EngineSettings) -> PipelineOptions:
    """The options of Beam: the runner that `--runner` names, followed by the user's."""
    runner = f"--runner={settings.runner.capitalize()}Runner"
    return PipelineOptions([runner, *shlex.split(settings.pipeline_options)])


def _run(pipeline: apache_beam.Pipeline) -> None:
    """Runs a pipeline to its end; a user error of a worker is raised again here."""
    try:
        state = pipeline.run().wait_until_finish()
    except Exception as error:
        # Most runners raise another error whose message contains the text of the worker's error.
        text = f"{type(error).__name__}: {error}".replace("\\n", "\n")
        match = re.search(r"\bUserError: (.*?)(?: \[while running|$)", text, re.M)
        if not match:
            raise
        raise UserError(match[1]) from None
    if state != PipelineState.DONE:
        raise UserError(f"the pipeline ended in state {state}; its runner's log says why")
