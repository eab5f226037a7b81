"""Trackers of experiments, which get the lines of a run's logs: Weights & Biases and MLflow (--log_to).

Their own environment variables choose the server or the offline mode (`WANDB_MODE=offline`, `MLFLOW_TRACKING_URI`).
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

# name of the log, step, values
Tracker = Callable[[str, int, Mapping[str, float]], None]
_RUN_TAG = "albert_tf_run"


def tracker(kind: str, folder: str, run_id: str, settings: Mapping[str, Mapping]) -> Tracker:
    """A function that sends lines of a log to the tracker's run, which a resumed run continues."""
    name = os.path.basename(os.path.normpath(folder))
    return {"wandb": _wandb, "mlflow": _mlflow}[kind](name, run_id, settings)


def _wandb(name: str, run_id: str, settings: Mapping[str, Mapping]) -> Tracker:
    import wandb

    run: Any = wandb.init(
        name=name, id=run_id, resume="allow", config=dict(settings), reinit="finish_previous"
    )
    return lambda log, step, values: run.log(_under(log, values), step=step)


def _mlflow(name: str, run_id: str, settings: Mapping[str, Mapping]) -> Tracker:
    import mlflow

    mlflow.end_run()  # the one before, of --num_runs
    wanted = f"tags.{_RUN_TAG} = '{run_id}'"
    known: Any = mlflow.search_runs(filter_string=wanted, output_format="list")
    if known:
        mlflow.start_run(known[0].info.run_id)
    else:
        mlflow.start_run(run_name=name, tags={_RUN_TAG: run_id})
        for group, values in settings.items():
            mlflow.log_params(_under(group, values))
    return lambda log, step, values: mlflow.log_metrics(_under(log, values), step=step)


def _under(group: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{group}/{name}": value for name, value in values.items() if name != "step"}
