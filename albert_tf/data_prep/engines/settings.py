"""Settings of the engine of a program: where its work is computed."""

import dataclasses
import shlex

from albert_tf.core.settings import Settings, setting
from albert_tf.core.workers import num_workers_setting

BEAM_RUNNERS = ("flink", "spark", "dataflow", "portable")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DaskSettings(Settings):
    """Whether this machine or a Dask cluster computes; changes no result."""

    num_workers: int | None = num_workers_setting()
    runner: str = setting(
        "local",
        "local: processes of this machine; dask: the workers of a Dask cluster. Changes no result.",
        choices=("local", "dask"),
        changes_results=False,
    )
    dask_scheduler: str = setting(
        "",
        "Address of Dask's scheduler, such as tcp://host:8786, or its scheduler file; if not given, --runner=dask"
        " starts a cluster on this machine, with --num_workers.",
        changes_results=False,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.dask_scheduler and self.runner != "dask":
            self.refuse("dask_scheduler", f"contradicts --runner={self.runner}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineSettings(DaskSettings):
    """Which of all engines computes, and how it is reached; changes no result."""

    runner: str = setting(
        "local",
        "local: processes of this machine; dask: the workers of a Dask cluster; the others use Apache Beam,"
        " portable at any --job_endpoint. Changes no result.",
        choices=("local", "dask", *BEAM_RUNNERS),
        changes_results=False,
    )
    pipeline_options: str = setting(
        "", "Options of Beam and of the runner, as on a command line.", changes_results=False
    )

    def __post_init__(self):
        super().__post_init__()
        if self.pipeline_options and self.runner not in BEAM_RUNNERS:
            self.refuse(
                "pipeline_options", f"contradicts --runner={self.runner}, which is not Beam"
            )
        try:
            shlex.split(self.pipeline_options)
        except ValueError as error:
            self.refuse("pipeline_options", f"cannot be split into options ({error})")
