"""Training and evaluation of any task on any devices. The programs call `run`.

docs/project/architecture.md shows the whole run as one script: a step, its data and its checkpoint. Here, orbit's
Controller runs the steps of `step.py` in loops on the device, of a few seconds at most. Between them, `TrainingLoop`
shows the progress, logs, saves checkpoints, evaluates, and ends after a signal.
"""

import contextlib
import math
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import orbit
import tensorflow as tf
import tf_keras
from orbit import controller as orbit_controller

from albert_tf.core import files
from albert_tf.core.errors import Interrupted, UserError, first_line
from albert_tf.core.locks import locked
from albert_tf.core.progress import Progress
from albert_tf.model.device import graphs_freed, op_determinism
from albert_tf.training.devices import is_chief, make_strategy, num_workers, sum_over_workers
from albert_tf.training.results import describe, shown, write_results
from albert_tf.training.run_folder import CHECKPOINTS, EVAL_METRICS_FILE, METRICS_FILE
from albert_tf.training.settings import OptimizerConfig, RunConfig
from albert_tf.training.state import GRADIENT_NORM, RunState, start_run
from albert_tf.training.step import Evaluator, FixedInputs, Trainer
from albert_tf.training.task import Metrics, Task

_STEPS_PER_LOOP = 1000  # at most
_LOOP_SECONDS = 2.0  # approximate maximum duration of a loop on the device
_SECONDS_BETWEEN_UPDATES = 0.5  # of the bar, if loops are shorter
_SECONDS_BETWEEN_LINES = 60  # in a log of the program's output, about

# orbit prints a line for every loop to standard output, which would repeat our own lines.
orbit_controller._log = lambda message: None
# orbit and tf-models-official call deprecated functions, about which TensorFlow warns.
tf.get_logger().setLevel("ERROR")


def run(
    make_task: Callable[[], Task], run_config: RunConfig, optimizer_config: OptimizerConfig
) -> dict:
    """Trains and evaluates the task that `make_task` creates, after devices and seeds are set; resumes --output_dir."""
    strategy = make_strategy(run_config)
    # With 0, `Dataset.shuffle` would compare its own seed, a tensor, with 0.
    tf_keras.utils.set_random_seed(run_config.seed or 1 << 31)
    is_deterministic = op_determinism() if run_config.deterministic else contextlib.nullcontext()
    # The lock is also held if nothing is trained, because an evaluation writes logs and results, too.
    with is_deterministic, graphs_freed(), lock_of(strategy, run_config), strategy.scope():
        task = make_task()
        with _explained_errors(run_config, task):
            return _complete(start_run(task, run_config, optimizer_config))


def lock_of(
    strategy: tf.distribute.Strategy, run_config: RunConfig
) -> contextlib.AbstractContextManager[None]:
    """The lock on --output_dir; if there are several workers, only the chief holds it."""
    return locked(run_config.output_dir) if is_chief(strategy) else contextlib.nullcontext()


def _complete(state: RunState) -> dict:
    """Trains, evaluates, predicts, writes the results and the model; returns the results."""
    task = state.task
    folder = state.folder
    if folder.is_chief:
        print(describe(state), flush=True)
    evaluator = Evaluator(state, task.eval_data) if task.eval_data else None
    evaluation: Metrics = {}
    if state.run_config.do_train:
        with _training_progress(state) as progress, state.interruption.watched():
            evaluation = _trained(state, evaluator, progress)
    elif evaluator:
        with Progress("evaluating", 1) as progress:
            evaluation = evaluate(state, evaluator, progress)
    last_evaluation = evaluation
    num_steps = state.step - state.first_step
    if state.run_config.do_train and task.keeps == "best":
        evaluation = _evaluation_of_best(state, evaluator, last_evaluation)
    if evaluator:
        folder.write_files(task.evaluation_files(evaluator.predictions))
    if task.predict_data:
        predictor = Evaluator(state, task.predict_data, has_labels=False)
        # No older answers where newer ones are expected.
        for name in filter(None, (task.predictions_file(), *task.older_predictions)):
            if folder.is_chief:
                files.remove_older(folder.file(name))
        predictor.results()
        contents = task.prediction_files(predictor.predictions)
        folder.write_files(contents)
        if folder.is_chief:
            print(f"predictions in {', '.join(map(folder.file, contents))}", flush=True)
    return write_results(state, evaluation, last_evaluation, num_steps)


def _trained(state: RunState, evaluator: Evaluator | None, progress: Progress) -> Metrics:
    """Trains as the task wants it; returns the results of the last evaluation, empty without one."""
    if state.task.is_fitted:
        return _fit(state, evaluator, progress)
    return TrainingLoop(state, evaluator, progress).train()


def _fit(state: RunState, evaluator: Evaluator | None, progress: Progress) -> Metrics:
    """Trains a task that is fitted at once, as one step; returns the results of the evaluation, empty without one.

    A run that is killed before its checkpoint begins again.
    """
    evaluations = state.folder.cut_logs(state.first_step)
    if not state.step:
        started = time.monotonic()
        reader = FixedInputs(state)
        reader.results()
        results = state.task.fit(state.model, reader.predictions)
        state.global_step.assign(1)
        assert state.task.train_data
        speed = state.task.train_data.num_examples / (time.monotonic() - started)
        line = {"step": 1, **results, "examples_per_second": round(speed, 3)}
        state.folder.log(METRICS_FILE, line)
        state.checkpoints.save(1)
        if state.folder.is_chief:
            texts = {name: shown(value) for name, value in results.items()}
            progress.update(1, texts, is_news=True)
    if not evaluator:
        return {}
    return evaluate(state, evaluator, progress, is_logged=state.step in evaluations)


def _evaluation_of_best(
    state: RunState, evaluator: Evaluator | None, last_evaluation: Metrics
) -> Metrics:
    """Restores the best checkpoint of a training, if it is not the last, and evaluates it."""
    checkpoints = state.checkpoints
    if not checkpoints.best:
        if evaluator and state.folder.is_chief:
            reason = f"{state.task.best_metric} was undefined in every evaluation"
            print(f"NOTE      {reason}: the model of the last step is kept", flush=True)
        return last_evaluation
    best_step = checkpoints.best["step"]
    if not checkpoints.best_path or best_step == state.step:
        return last_evaluation
    if not evaluator and state.step > state.first_step and state.folder.is_chief:
        reason = f"the model of step {best_step:,} is kept, the best one that was evaluated"
        advice = "the same command with --do_eval and data to evaluate on compares it with that of"
        print(f"NOTE      {reason}; {advice} step {state.step:,}", flush=True)
    checkpoints.restore(checkpoints.best_path)
    return evaluator.results() if evaluator else {}


def _training_progress(state: RunState) -> Progress:
    """The progress in steps, or in seconds of a budget of time."""
    size: dict[str, Any] = {"total": state.last_step, "first": state.first_step}
    if clock := state.clock:
        first = int(clock.seconds.numpy())
        size = {"total": max(1, round(clock.budget)), "first": first, "unit": "seconds"}
    return Progress("training", **size, seconds_between_lines=_SECONDS_BETWEEN_LINES)


class _TimeIsUpError(Exception):
    """Ends orbit's loop when the budget of time is used."""


class TrainingLoop:
    """The training of a run, with its logs, checkpoints and evaluations."""

    def __init__(self, state: RunState, evaluator: Evaluator | None, progress: Progress):
        self._state = state
        self._evaluator = evaluator
        self._progress = progress
        self._controller = orbit.Controller(
            global_step=state.global_step,
            trainer=Trainer(state),
            strategy=state.strategy,
            steps_per_loop=self._steps_to_next_event,
            train_actions=[self._after_steps],
        )
        # The last logged step and its time. The time of an evaluation is added, so that it does not count as training.
        self._last_logged = (state.first_step, time.monotonic())
        self._last_shown = -math.inf  # time of the last update of the progress
        self._saved_step = state.first_step
        self._loop_started = (state.first_step, time.monotonic())
        # Number of steps that take at most `_LOOP_SECONDS`; doubled until they take that long.
        self._steps_in_time = 1
        self._evaluations: dict[int, Metrics] = {}  # the evaluations in the log, by step

    def train(self) -> Metrics:
        """Trains to the last step, or as far as --early_stopping_patience lets it.

        Returns the results of the last evaluation, empty without one.
        """
        state = self._state
        self._evaluations = {**state.folder.cut_logs(state.first_step)}
        every = state.run_config.eval_every_steps if self._evaluator else state.last_step
        step = state.first_step
        results: Metrics = {}
        # A training that has stopped may have done so at a step that is no multiple of the present interval.
        is_due = step % every == 0 or step >= state.last_step or self._has_stopped()
        if self._evaluator and step and is_due:
            results = self._evaluation_at_start()
        while step < state.last_step and not self._has_stopped():
            step = min((step // every + 1) * every, state.last_step)
            try:
                self._controller.train(step, checkpoint_at_completion=False)
            except _TimeIsUpError:
                step = state.step
            if self._evaluator:
                results = self._evaluate()
        if step < state.last_step:
            self._stop_early(step)
        return results

    def _has_stopped(self) -> bool:
        """Whether --early_stopping_patience ends the training after the evaluations so far."""
        patience = self._state.run_config.early_stopping_patience
        if not patience:
            return False
        metric = self._state.task.best_metric
        evaluations = sorted(self._evaluations.items())
        values_of_metric = [results.get(metric) for _, results in evaluations]
        return evaluations_without_improvement(values_of_metric) >= patience

    def _stop_early(self, step: int) -> None:
        """Says that the training ends before its last step, and saves the state if that was not done."""
        state = self._state
        if step != self._saved_step:
            self._save(step)
        best = state.checkpoints.best
        if state.folder.is_chief and best:
            patience = state.run_config.early_stopping_patience
            best_value = f"{best['metric']} {best['value']:.4f} of step {best['step']:,}"
            reason = f"no evaluation after it was better (--early_stopping_patience={patience})"
            # With a budget of time, nobody knows how many steps there would have been.
            of_all = "" if state.clock else f" of {state.last_step:,}"
            self._progress.say(f"stopped at step {step:,}{of_all}: {best_value}, {reason}")

    def _evaluation_at_start(self) -> Metrics:
        """The evaluation of the checkpoint that the run is resumed from, if the log lacks it or training has ended."""
        state = self._state
        logged = self._evaluations.get(state.first_step)
        has_ended = state.first_step >= state.last_step or self._has_stopped()
        is_final = has_ended and state.task.keeps == "best"
        return logged if logged and not is_final else self._evaluate()

    def _evaluate(self) -> Metrics:
        assert self._evaluator
        started = time.monotonic()
        evaluated_at = self._state.step
        is_logged = evaluated_at in self._evaluations
        try:
            results = evaluate(self._state, self._evaluator, self._progress, is_logged=is_logged)
        except Interrupted:
            self._end()
        self._evaluations[evaluated_at] = results
        step, logged_at = self._last_logged
        self._last_logged = (step, logged_at + time.monotonic() - started)
        self._end_if_interrupted()
        return results

    def _steps_to_next_event(self, step: int) -> int:
        """Number of steps that run on the device without returning to Python."""
        config = self._state.run_config
        intervals = (config.log_every_steps, config.save_checkpoints_steps)
        events = [(step // interval + 1) * interval for interval in intervals]
        self._loop_started = (step, time.monotonic())
        longest = min(_STEPS_PER_LOOP, self._steps_in_time)
        return min(*events, self._state.last_step, step + longest) - step

    def _after_steps(self, _outputs) -> None:
        """Logs and saves if that is due at this step."""
        config = self._state.run_config
        step = self._state.step
        learning_rate = self._state.learning_rate(step - 1)
        first, started = self._loop_started
        seconds = time.monotonic() - started
        self._add_time(seconds if first > self._state.first_step else 0.0)
        in_time = (step - first) * _LOOP_SECONDS / max(seconds, 1e-9)
        self._steps_in_time = max(1, min(2 * self._steps_in_time, int(in_time)))
        is_last = step == self._state.last_step
        if is_last or step % config.log_every_steps == 0:
            self._log(step, learning_rate)
        elif time.monotonic() - self._last_shown > _SECONDS_BETWEEN_UPDATES:
            self._show(step, self._state.accumulators.results())
        if is_last or step % config.save_checkpoints_steps == 0:
            self._save(step)
        if not is_last:
            self._end_if_interrupted()
        elif self._state.clock:
            raise _TimeIsUpError

    def _add_time(self, seconds: float) -> None:
        """Adds the chief's seconds to the clock, so that all workers have the same learning rate."""
        clock = self._state.clock
        if not clock:
            return
        of_this_worker = seconds if is_chief(self._state.strategy) else 0.0
        [of_chief] = sum_over_workers(self._state.strategy, [of_this_worker])
        clock.seconds.assign_add(of_chief)

    def _end_if_interrupted(self) -> None:
        """Saves the state and ends the training if a signal has arrived at any worker."""
        state = self._state
        # The workers must end at the same step, so their loops must have the same lengths.
        is_interrupted = state.interruption.number > 0
        steps_of_chief = self._steps_in_time if is_chief(state.strategy) else 0
        sums = sum_over_workers(state.strategy, [is_interrupted, steps_of_chief])
        num_interrupted, self._steps_in_time = map(round, sums)
        if num_interrupted:
            self._end()

    def _end(self) -> NoReturn:
        state = self._state
        if state.step != self._saved_step:
            self._save(state.step)
        message = f"interrupted at step {state.step:,}"
        if state.step:
            path = state.folder.file(f"{CHECKPOINTS}/step-{state.step}")
            message += f", whose checkpoint is {path}; the same command continues from there"
        raise Interrupted(message, state.interruption.number or signal.SIGTERM)

    def _save(self, step: int) -> None:
        """Saves the state; a `UserError` instead, if the model has diverged since the last line of the log.

        Otherwise it would take the place of an older checkpoint, and the same command would continue from it.
        """
        last_logged, _ = self._last_logged
        self._check_finite(self._state.accumulators.results(), last_logged, step)
        self._state.checkpoints.save(step)
        self._saved_step = step

    def _log(self, step: int, learning_rate: float) -> None:
        """Writes losses, metrics and speed since the last line."""
        state = self._state
        results = state.accumulators.results()
        state.accumulators.reset()
        last_step, last_time = self._last_logged
        now = time.monotonic()
        self._last_logged = (step, now)
        self._check_finite(results, last_step, step)
        assert state.task.train_data
        examples_of_step = state.task.train_data.examples_in(state.run_config.train_batch_size)
        examples = (step - last_step) * examples_of_step
        speed = round(examples / (now - last_time), 3)
        line = {
            "step": step,
            **results,
            "learning_rate": learning_rate,
            "examples_per_second": speed,
        }
        state.folder.log(METRICS_FILE, line)
        self._show(step, results, speed)

    def _check_finite(self, results: Metrics, last_step: int, step: int) -> None:
        """Ends the training if a value of the steps between two lines of the log is not finite."""
        wrong = {
            name: value
            for name, value in results.items()
            if value is not None and not math.isfinite(value)
        }
        if not wrong:
            return
        # A diverged model has a loss that is not finite, and then everything that depends on it.
        name = next(iter(wrong))
        is_metric = name != GRADIENT_NORM and name != "loss" and not name.endswith("_loss")
        advice = "lower --learning_rate or raise --num_warmup_steps"
        if is_metric:
            advice = "the losses are finite, so the task computes this metric wrongly"
        saved = f"the newest checkpoint is {self._state.checkpoints.latest or 'none'}"
        place = f"between steps {last_step} and {step}; {saved}"
        raise UserError(f"the {name} is {wrong[name]} {place}: {advice}")

    def _show(self, step: int, results: Metrics, speed: float | None = None) -> None:
        """Shows the progress with the averages since the last line of the log; `speed` comes with such a line."""
        if not self._state.folder.is_chief:
            return
        is_first = math.isinf(self._last_shown)
        self._last_shown = time.monotonic()
        texts = {name: shown(value) for name, value in results.items()}
        if speed is not None:
            texts["examples/s"] = f"{speed:.1f}"
        if clock := self._state.clock:
            texts = {"step": f"{step:,}", **texts}
            step = int(clock.seconds.numpy())
        self._progress.update(step, texts, is_news=is_first or speed is not None)


def evaluate(
    state: RunState, evaluator: Evaluator, progress: Progress, *, is_logged: bool = False
) -> dict[str, float | None]:
    """Evaluates, logs and prints the results; in training, saves a checkpoint if it is the best so far.

    Where the metric of the best checkpoint is undefined, the checkpoint is not a candidate. `is_logged` says that the
    log already has the results: a finished run is evaluated again for its predictions.
    """
    results = evaluator.results(state.run_config.max_eval_steps)
    step = state.step
    task = state.task
    # The log line is written after the checkpoint: a run that is killed between the two evaluates again.
    is_best = state.run_config.do_train and state.checkpoints.save_if_best(
        step, task.best_metric, results[task.best_metric]
    )
    if not is_logged:
        state.folder.log(EVAL_METRICS_FILE, {"step": step, **results})
    if state.folder.is_chief:
        names = task.shown_metrics or results
        metrics = "  ".join(f"{name} {shown(results[name])}" for name in names if name in results)
        note = "  (best so far)" if is_best else ""
        progress.say(f"evaluation at step {step}  {metrics}{note}")
    return results


def evaluations_without_improvement(values: Sequence[float | None]) -> int:
    """The number of values after the first one of the greatest; None, where a metric is undefined, does not count."""
    defined = [value for value in values if value is not None]
    return len(defined) - 1 - defined.index(max(defined)) if defined else 0


@contextlib.contextmanager
def _explained_errors(run_config: RunConfig, task: Task) -> Iterator[None]:
    """Turns TensorFlow's errors about the user's files, disk and machines into errors of one line."""
    try:
        yield
    except (tf.errors.OpError, OSError, RuntimeError) as error:
        reason = first_line(error)
        same_command = "the same command again: the run continues from the newest checkpoint"
        if _is_of_workers(error):
            reason = f"another worker has ended or cannot be reached ({reason})"
            raise UserError(f"{reason}; give every worker {same_command}") from None
        if "No space left" in reason:
            place = f"--output_dir={run_config.output_dir}: no space left on the disk"
            raise UserError(f"{place}; make room and run {same_command}") from None
        if isinstance(error, tf.errors.DataLossError):
            damaged = [data.damaged_file() for data in (task.train_data, task.eval_data) if data]
            place = next(filter(None, damaged), "--input_file")
            reason = f"{place}: damaged records ({reason})"
            raise UserError(f"{reason}: create the file again, then run {same_command}") from None
        raise


def _is_of_workers(error: Exception) -> bool:
    """Whether an error says that another worker no longer answers."""
    if num_workers(tf.distribute.get_strategy()) == 1:
        return False
    kinds = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
    aborted = re.search("Collective ops is aborted by|cluster check alive failed", str(error))
    return bool(aborted) or isinstance(error, kinds)
