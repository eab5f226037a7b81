"""Training and evaluation of any task on any strategy: `run` is the only function that scripts call.

orbit's Controller drives the outer loop; the step inside is ours. A step is the same under every strategy: each
device takes its part of the global batch, every loss is divided once by its count over the whole batch, gradients
are summed over devices and then clipped, so that neither devices nor gradient accumulation change the result.
"""

import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Mapping

import orbit
import tensorflow as tf
import tf_keras
from orbit import controller as orbit_controller

from albert_tf.core.errors import UserError, first_line
from albert_tf.core.progress import Progress
from albert_tf.data.datasets import Data
from albert_tf.training import optimizers
from albert_tf.training.devices import _check_batches, _is_chief, make_strategy
from albert_tf.training.evaluation import Evaluator
from albert_tf.training.run_folder import (
    EVAL_METRICS_FILE,
    METRICS_FILE,
    RESULTS_FILE,
    Checkpoints,
    RunFolder,
    write_json,
)
from albert_tf.training.settings import OptimizerConfig, RunConfig
from albert_tf.training.step import Accumulators, Trainer, ratio_names, with_total_loss
from albert_tf.training.task import Task

# Settings that may change when a run is taken up again: none changes what the steps compute.
_FREE_SETTINGS = frozenset(
    {
        *("output_dir", "overwrite_output_dir", "do_train", "do_eval", "stop_after_steps"),
        *("distribution_strategy", "num_devices", "tpu_name", "worker_hosts", "task_index"),
        *("recompute_activations", "jit_compile", "gradient_accumulation_steps", "deterministic"),
        *("steps_per_loop", "log_every_steps", "save_checkpoints_steps", "keep_checkpoint_max"),
        *("eval_every_steps", "eval_batch_size", "max_eval_steps", "eval_file", "spm_model_file"),
        # May have moved; the contents are checked.
        *("input_file", "albert_config_file", "init_checkpoint", "data_dir", "train_file"),
        *("do_predict", "predict_file", "feature_cache_dir", "num_workers", "preset", "num_runs"),
        *("restart_collapsed", "ensemble", "ensemble_selection", "early_stopping_evaluations"),
        *("null_threshold", "n_best_size"),
    }
)


# orbit prints every loop to standard output; our lines and bars say the same, once.
orbit_controller._log = lambda message: None


# Notes on deprecated functions that orbit and tf-models-official call.
tf.get_logger().setLevel("ERROR")


def run(
    make_task: Callable[[], Task], run_config: RunConfig, optimizer_config: OptimizerConfig
) -> dict:
    """Trains and evaluates a task as the settings say; takes up the run that --output_dir holds.

    Args:
      make_task: gives the task; called once devices and seeds are set.
      run_config: folder, batches, devices, intervals.
      optimizer_config: optimiser and schedule.

    Returns:
      The contents of results.json.

    Raises:
      UserError: the settings contradict the devices, the records or what the folder holds; the disk is full; a record
        is damaged; the loss is no longer finite.
    """
    strategy = make_strategy(run_config)
    tf_keras.utils.set_random_seed(run_config.seed)
    if run_config.deterministic:
        tf.config.experimental.enable_op_determinism()
    with strategy.scope():
        task = make_task()
        with _explained_errors(task, run_config):
            return Run(task, run_config, optimizer_config).complete()


@contextlib.contextmanager
def _explained_errors(task: Task, run_config: RunConfig) -> Iterator[None]:
    """Turns TensorFlow's errors about the user's files and memory into one line."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        reason = first_line(error)
        if "No space left" in reason or getattr(error, "errno", None) == errno.ENOSPC:
            raise UserError(
                f"--output_dir={run_config.output_dir}: no space left on the disk; make room and run the"
                " same command again, it goes on from the newest checkpoint"
            ) from None
        if isinstance(error, tf.errors.ResourceExhaustedError):
            raise UserError(
                f"out of memory ({reason}): lower --train_batch_size, or raise"
                " --gradient_accumulation_steps, or set --recompute_activations"
            ) from None
        if isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
            # A record that the first look at the files did not come to?
            damaged = [file for data in task.data for file in data.damage()]
            if damaged or isinstance(error, tf.errors.DataLossError):
                raise UserError(
                    f"damaged records: {', '.join(damaged) or reason}: make the files anew, then run the"
                    " same command again"
                ) from None
        raise


class Run:
    """One run of a task: its state, its datasets, its loop.

    Args:
      task: what is trained.
      run_config: folder, batches, devices, intervals.
      optimizer_config: optimiser and schedule.

    Raises:
      UserError: see `run`.
    """

    def __init__(self, task: Task, run_config: RunConfig, optimizer_config: OptimizerConfig):
        self.started = time.monotonic()
        self.task = task
        self.strategy = tf.distribute.get_strategy()
        self.config, self.optimizer_config = task.resolve(run_config, optimizer_config)
        _check_batches(self.config, self.strategy.num_replicas_in_sync)
        self.folder = self._make_folder()
        self.model = task.build_model(
            dtype=run_config.mixed_precision,
            recompute_activations=run_config.recompute_activations,
            seed=run_config.seed,
        )
        # Only now, when all else was found to be right, is anything written or deleted. To create a variable, the
        # other workers wait for the chief: they look for checkpoints when it has deleted what it should.
        self.folder.open(trains=run_config.do_train)
        self._make_state()
        last = self.optimizer_config.num_train_steps
        self.last_step = min(last, run_config.stop_after_steps or last)
        self._last_logged = (self.first_step, time.monotonic())
        self._eval_results: dict[str, float] = {}
        self.chance = task.chance_levels()

    def _make_folder(self) -> RunFolder:
        settings = {
            "run": self.config.to_dict(),
            "optimizer": self.optimizer_config.to_dict(),
            **self.task.settings(),
        }
        free = _FREE_SETTINGS
        if not self.config.do_train:  # all that must fit is the model
            groups = [group for name, group in settings.items() if name != "model"]
            free = free.union(*groups)
        is_chief = _is_chief(self.strategy)
        return RunFolder(
            self.config.output_dir, settings, free, self.config.overwrite_output_dir, is_chief
        )

    def _make_state(self) -> None:
        """What a checkpoint holds, and its values if the folder has one."""
        self.global_step = orbit.utils.create_global_step()
        state = {"model": self.model, "global_step": self.global_step}
        if self.config.do_train:
            names = ratio_names(self.task, self.model, self.task.train_data)
            self.accumulators = state["accumulators"] = Accumulators(names)
            state["optimizer"] = self._make_optimizer()
        self.checkpoints = Checkpoints(self.folder, state, self.config.keep_checkpoint_max)
        path = self.checkpoints.latest
        if not self.config.do_train and self.task.keeps == "best":
            path = self.checkpoints.best_path or path
        if path:
            self.checkpoints.restore(path)
        self.first_step = int(self.global_step.numpy())

    def _make_optimizer(self):
        self.optimizer = optimizers.create_optimizer(
            self.optimizer_config, self.config.train_batch_size, self.model.named_variables()
        )
        self.schedule = self.optimizer.schedule
        if self.config.mixed_precision == "mixed_float16":
            self.optimizer = tf_keras.mixed_precision.LossScaleOptimizer(self.optimizer)
        return self.optimizer

    def complete(self) -> dict:
        """Trains, evaluates, predicts, writes the results and the model; returns the results."""
        if self.folder.is_chief:
            print(describe(self), flush=True)
        evaluator = self._make_evaluator(self.task.eval_data)
        if self.config.do_train:
            self._train(evaluator)
        elif evaluator:
            controller = self._make_controller(None, evaluator)
            self._eval_results = self._evaluate(controller, Progress("evaluating", 1))
        last = self._eval_results
        if self.config.do_train and self.task.keeps == "best" and self.checkpoints.best:
            self._return_to_best(evaluator)
        if evaluator:
            self.folder.write_files(self.task.evaluation_files([evaluator.predictions]))
        if self.task.predict_data:
            self._predict()
        return self._finish(evaluator, last)

    def _return_to_best(self, evaluator: Evaluator) -> None:
        """Puts the best checkpoint's state back, with its predictions."""
        if self.checkpoints.best["step"] == int(self.global_step.numpy()):
            return
        self.checkpoints.restore(self.checkpoints.best_path)
        controller = self._make_controller(None, evaluator)
        self._eval_results = controller.evaluate(evaluator.num_steps)
        self._eval_results.pop("steps_per_second")

    def _predict(self) -> None:
        predictor = self._make_evaluator(self.task.predict_data, has_labels=False)
        self._make_controller(None, predictor).evaluate(predictor.num_steps)
        files = self.task.prediction_files([predictor.predictions])
        self.folder.write_files(files)
        if self.folder.is_chief:
            print(f"predictions in {', '.join(map(self.folder.file, files))}", flush=True)

    def make_trainer(self, make_dataset: Callable[[], tf.data.Dataset] | None = None) -> Trainer:
        """The training step with its data.

        Args:
          make_dataset: gives other global batches than those of the task's training data.
        """

        def dataset(context):
            if make_dataset:
                return make_dataset()
            return self.task.train_data.training_dataset(
                self.config.train_batch_size,
                seed=self.config.seed,
                first_step=self.first_step,
                context=context,
            )

        return Trainer(
            self.task,
            model=self.model,
            optimizer=self.optimizer,
            global_step=self.global_step,
            accumulators=self.accumulators,
            dataset=self.strategy.distribute_datasets_from_function(dataset),
            run=self.config,
            max_gradient_norm=self.optimizer_config.max_gradient_norm,
        )

    def _make_evaluator(self, data: Data | None, has_labels: bool = True) -> Evaluator | None:
        if not data:
            return None
        batch_size = self.config.eval_batch_size
        return Evaluator(self.task, self.model, data, batch_size=batch_size, has_labels=has_labels)

    def _make_controller(self, trainer, evaluator, **options) -> orbit.Controller:
        return orbit.Controller(
            global_step=self.global_step,
            trainer=trainer,
            evaluator=evaluator,
            strategy=self.strategy,
            **options,
        )

    def _train(self, evaluator: Evaluator | None) -> None:
        self.folder.cut_metrics(self.first_step)
        every = self.config.eval_every_steps if evaluator else self.last_step
        with Progress("training", self.last_step, first=self.first_step) as self._progress:
            controller = self._make_controller(
                self.make_trainer(),
                evaluator,
                steps_per_loop=self._steps_to_next_event,
                train_actions=[self._after_steps],
            )
            step = self.first_step
            if evaluator and step and (step % every == 0 or step == self.last_step):
                # A kill may have come between this checkpoint and its evaluation.
                logged = self.folder.logged(EVAL_METRICS_FILE).get(step)
                done = step == self.last_step or self._stops_early()
                if not logged or (done and self.task.keeps == "best"):  # its predictions are wanted
                    logged = self._evaluate(controller, self._progress)
                self._eval_results = logged
            while step < self.last_step and not self._stops_early():
                step = min((step // every + 1) * every, self.last_step)
                controller.train(step, checkpoint_at_completion=False)
                if evaluator:
                    self._eval_results = self._evaluate(controller, self._progress)

    def _stops_early(self) -> bool:
        """Whether the last evaluations were all no better than one before."""
        patience, best = self.config.early_stopping_evaluations, self.checkpoints.best
        if not patience or not best:
            return False
        later = [step for step in self.folder.logged(EVAL_METRICS_FILE) if step > best["step"]]
        return len(later) >= patience

    def _steps_to_next_event(self, step: int) -> int:
        """How many steps run on the device without a return to Python."""
        run = self.config
        intervals = (run.log_every_steps, run.save_checkpoints_steps)
        events = [(step // interval + 1) * interval for interval in intervals]
        return min(*events, self.last_step, step + run.steps_per_loop) - step

    def _after_steps(self, _outputs) -> None:
        """Checks, logs and saves whatever is due at this step."""
        step = int(self.global_step.numpy())
        if step % self.config.log_every_steps == 0 or step == self.last_step:
            self._log(step)
        if step % self.config.save_checkpoints_steps == 0 or step == self.last_step:
            self.checkpoints.save(step)

    def _log(self, step: int) -> None:
        results = with_total_loss(self.accumulators.results())
        self.accumulators.reset()
        last_step, last_time = self._last_logged
        self._last_logged = (step, time.monotonic())
        if not all(abs(value) < float("inf") for value in results.values()):
            raise UserError(
                f"the loss is {results['loss']} between steps {last_step} and {step}; the newest checkpoint"
                f" is {self.checkpoints.latest}: lower --learning_rate or raise --num_warmup_steps"
            )
        examples = (step - last_step) * self.config.train_batch_size
        values = {
            "step": step,
            **results,
            "learning_rate": float(self.schedule(step - 1)),
            "examples_per_second": round(examples / (self._last_logged[1] - last_time), 3),
        }
        self.folder.append_metrics(METRICS_FILE, values)
        self.folder.write_summaries("train", step, values)
        if self.folder.is_chief:
            shown = {name: f"{value:.4f}" for name, value in results.items()}
            shown["examples/s"] = f"{values['examples_per_second']:.1f}"
            self._progress.update(step, shown)

    def _evaluate(self, controller: orbit.Controller, progress: Progress) -> dict[str, float]:
        started = time.monotonic()
        steps = controller.evaluator.num_steps
        steps = min(steps, self.config.max_eval_steps or steps)
        results = controller.evaluate(steps)
        results.pop("steps_per_second")
        step = int(self.global_step.numpy())
        self.folder.append_metrics(EVAL_METRICS_FILE, {"step": step, **results})
        self.folder.write_summaries("eval", step, results)
        is_best = self.config.do_train and self.checkpoints.save_if_best(
            step, self.task.best_metric, results[self.task.best_metric]
        )
        if self.folder.is_chief:
            names = self.task.shown_metrics or results
            shown = "  ".join(f"{name} {results[name]:.4f}" for name in names if name in results)
            progress.say(
                f"evaluation at step {step}  {shown}{'  (best so far)' if is_best else ''}"
            )
        # What examples_per_second is measured from: an evaluation is no training.
        last_step, last_time = self._last_logged
        self._last_logged = (last_step, last_time + time.monotonic() - started)
        return results

    def _finish(self, evaluator: Evaluator | None, last: Mapping[str, float]) -> dict:
        """Writes the results, the model and the files about the evaluation.

        Args:
          evaluator: what was evaluated last, or None.
          last: results of the last step, where those of another one are kept.
        """
        results = {
            "step": int(self.global_step.numpy()),
            "num_parameters": self.model.count_params(),
            "eval": self._eval_results,
            "chance": self.chance,
            "best": self.checkpoints.best,
            "seconds": round(time.monotonic() - self.started, 1),
            "steps_in_this_process": self._last_logged[0] - self.first_step,
        }
        if self.task.keeps == "best":
            results["last"] = last
        if evaluator and (words := self.task.collapsed([evaluator.predictions])):
            results["collapsed"] = words
            print(
                f"COLLAPSED: {words}; another --seed, a lower --learning_rate or more warm-up may help"
            )
        if not self.config.do_train:  # what the training has written stays
            new = {name: results[name] for name in ("eval", "collapsed") if name in results}
            results = {
                **results,
                **self.folder.read_json(RESULTS_FILE),
                **(new if evaluator else {}),
            }
        if self.folder.is_chief:
            with self.folder.writing():
                if self.config.do_train:
                    history = self._history(results)
                    self.task.save_model(self.model, self.folder.file("model"), history)
                write_json(self.folder.file(RESULTS_FILE), results)
            print(f"results in {self.folder.file(RESULTS_FILE)}", flush=True)
        return results

    def _history(self, results: Mapping) -> dict[str, dict]:
        """What the model card says of the training and the evaluation."""
        config, optimizer = self.config, self.optimizer_config
        training = {
            "steps": results["step"],
            "batch, examples": config.train_batch_size,
            "optimizer": optimizer.optimizer,
            "peak learning rate": optimizer.peak_learning_rate(config.train_batch_size),
            "warm-up steps": optimizer.num_warmup_steps,
            "numbers": config.mixed_precision,
            "seed": config.seed,
        }
        measured = {}
        for name, value in results["eval"].items():
            chance = f" (chance {self.chance[name]:.4f})" if name in self.chance else ""
            measured[name] = f"{value:.4f}{chance}"
        return {"Training": training, "Results": measured}


def describe(run: Run) -> str:
    """What is about to be done, in a few lines."""
    config, optimizer, model = run.config, run.optimizer_config, run.task.model_config
    devices = run.strategy.num_replicas_in_sync
    per_device = config.train_batch_size // devices // config.gradient_accumulation_steps
    peak = optimizer.peak_learning_rate(config.train_batch_size)
    lines = {
        "model": f"{run.model.count_params():,} parameters, {model.num_hidden_layers} layers,"
        f" E {model.embedding_size}, D {model.hidden_size}, sharing {model.share_parameters}",
        "strategy": f"{type(run.strategy).__name__} on {devices} device(s), {config.mixed_precision}",
        "dropout": f"hidden {model.hidden_dropout_prob}, attention {model.attention_probs_dropout_prob},"
        f" classifier {model.classifier_dropout_prob}",
        "folder": config.output_dir,
    }
    if run.task.train_data and config.do_train:
        examples = run.task.train_data.num_examples
        lines["batch"] = (
            f"{config.train_batch_size} = {devices} device(s) x {config.gradient_accumulation_steps}"
            f" accumulated x {per_device}; {examples:,} examples,"
            f" {optimizer.num_train_steps * config.train_batch_size / examples:.1f} epochs"
        )
        lines["schedule"] = (
            f"{optimizer.optimizer}, warm-up to {peak:g} over {optimizer.num_warmup_steps} steps,"
            f" decay to 0 at step {optimizer.num_train_steps}"
        )
    if run.first_step:
        lines["resumed"] = f"at step {run.first_step}"
    chance = {name: f"{value:.4f}" for name, value in run.chance.items()}
    lines["chance"] = ", ".join(f"{name} {value}" for name, value in chance.items())
    return "\n".join(f"{name:<10}{text}" for name, text in lines.items() if text)
