"""The reports of a run: the first lines of its output, results.json, and rows of the model card."""

import math
import time
from collections.abc import Mapping
from typing import Any

from albert_tf.training.optimizers import factors_by_name
from albert_tf.training.run_folder import MODEL, RESULTS_FILE
from albert_tf.training.state import RunState
from albert_tf.training.task import Metrics


def shown(value: float | None) -> str:
    """A metric in a line of text."""
    return "undefined" if value is None else f"{value:.4f}"


def describe(state: RunState) -> str:
    """The model, devices, batches and schedule of a run, in a few lines."""
    config = state.run_config
    model = state.task.model_config
    devices = state.strategy.num_replicas_in_sync
    groups = model.num_hidden_groups
    in_groups = f" in each of {groups} groups" if groups > 1 else ""
    lines = {
        "model": f"{state.model.count_params():,} parameters, {model.num_hidden_layers} layers,"
        f" E {model.embedding_size}, D {model.hidden_size}, sharing {model.share_parameters}{in_groups}",
        "strategy": f"{type(state.strategy).__name__} on {devices} device(s), {config.mixed_precision}",
        "dropout": f"hidden {model.hidden_dropout_prob}, attention {model.attention_probs_dropout_prob},"
        f" classifier {model.classifier_dropout_prob}",
        "folder": config.output_dir,
    }
    if state.task.train_data and config.do_train:
        is_fitted = state.task.is_fitted
        lines |= _lines_about_fit(state) if is_fitted else _lines_about_steps(state)
        if config.do_eval and not state.task.eval_data:
            lines["NOTE"] = "nothing is evaluated: there is no evaluation data (--eval_file)"
    if state.first_step and config.do_train:
        is_done = state.first_step >= state.last_step
        note = ", the last one: nothing is left to train" if is_done else ""
        lines["resumed"] = f"at step {state.first_step}{note}"
    elif state.first_step:
        lines["trained"] = f"up to step {state.first_step}"
    lines["majority"] = ", ".join(
        f"{name} {shown(value)}" for name, value in state.majority.items()
    )
    return "\n".join(f"{name:<10}{text}" for name, text in lines.items() if text)


def _lines_about_fit(state: RunState) -> dict[str, str]:
    """What is fitted at once, by the titles of its lines."""
    data = state.task.train_data
    assert data
    facts = "; ".join(f"{name} {value}" for name, value in state.task.facts_about_fit().items())
    return {"training": f"{data.num_examples:,} examples; {facts}"}


def _lines_about_steps(state: RunState) -> dict[str, str]:
    """The batches, the schedule and what is trained, by the titles of their lines."""
    config = state.run_config
    optimizer = state.optimizer_config
    data = state.task.train_data
    assert data
    examples = data.num_examples

    # Of 64 rows on 2 devices, each accumulates 4 times: 8 rows at once.
    devices = state.strategy.num_replicas_in_sync
    accumulated = config.gradient_accumulation_steps
    rows = data.records_in(config.train_batch_size)
    rows_at_once = math.ceil(rows / (devices * accumulated))
    packed = f" in {rows} rows" if data.examples_in(1) != 1 else ""
    parts = f"{devices} device(s) x {accumulated} accumulated x {rows_at_once}"
    batch = f"{config.train_batch_size}{packed} = {parts}; {examples:,} examples"
    if not config.train_minutes:
        epochs = optimizer.num_train_steps * config.train_batch_size / examples
        batch += f", {epochs:.1f} epochs"

    lines = {
        "batch": batch,
        "schedule": f"{optimizer.optimizer}, {state.schedule.in_words()}",
    }
    if optimizer.learning_rate_factors:
        factors = factors_by_name(optimizer, state.model.named_variables())
        variables = state.model.named_variables().items()
        sizes = [variable.shape.num_elements() for name, variable in variables if factors[name]]
        trained = f"{sum(sizes):,} parameters are trained"
        lines["factors"] = f"{optimizer.learning_rate_factors}; {trained}"
    return lines


def write_results(
    state: RunState,
    evaluation: Metrics,
    last_evaluation: Metrics,
    num_steps: int,
) -> dict:
    """Writes results.json, returned, with evaluations of the kept and of the last model; after training, the model."""
    folder = state.folder
    task = state.task
    trains = state.run_config.do_train
    results = {
        "step": state.step,
        "num_parameters": state.model.count_params(),
        "eval": evaluation,
        "majority": state.majority,
        "best": state.checkpoints.best,
        "seconds": round(time.monotonic() - state.started, 1),
        "steps_in_this_process": num_steps,
    }
    if task.keeps == "best":
        results["last"] = last_evaluation
    recorded = folder.read_json(RESULTS_FILE)
    data = recorded.pop("data", {})
    # A file keeps the name under which it was used first.
    new = {
        split: about
        for split, about in folder.data.items()
        if data.get(split, {}).get("sha256") != about["sha256"]
    }
    if not trains:  # an evaluation does not replace the results of the training
        results |= {**recorded, **({"eval": evaluation} if evaluation else {})}
    elif not num_steps:  # the times of the process that trained are kept, and what it measured
        kept = ["seconds", "steps_in_this_process"]
        kept += [] if evaluation else ["eval", "last", "majority"]
        results |= {name: recorded[name] for name in kept if name in recorded}
    results["data"] = {**data, **new}
    if folder.is_chief:
        if trains:
            with folder.writing():
                task.save_model(state.model, folder.file(MODEL), _card(state, results))
        folder.write_json(RESULTS_FILE, results)
        print(f"results in {folder.file(RESULTS_FILE)}", flush=True)
    return results


def _card(state: RunState, measured: Mapping[str, Mapping]) -> dict[str, dict]:
    """The rows of the model card about training and evaluation."""
    config = state.run_config
    optimizer = state.optimizer_config
    majority = measured["majority"]
    training: dict[str, Any] = {
        "steps": state.step,
        "batch, examples": config.train_batch_size,
        "optimizer": optimizer.optimizer,
        "peak learning rate": optimizer.peak_learning_rate(config.train_batch_size),
        "warm-up steps": optimizer.num_warmup_steps,
        "numbers": config.mixed_precision,
        "seed": config.seed,
    }
    if state.task.is_fitted:
        training = {**state.task.facts_about_fit(), "numbers": config.mixed_precision}
    results = {name: shown(value) for name, value in measured["eval"].items()}
    for name in majority.keys() & results.keys():
        results[name] += f" (majority class {shown(majority[name])})"
    return {"Training": training, "Results": results}
