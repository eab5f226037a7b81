"""The engine on Apache Beam: calls the functions of `blocks.py` and `shards.py` on any number of machines.

A step passes only counts to the next one; text and token ids are in files, in `.unfinished`. A task may be given to a
worker again, by the runner or when a killed run is resumed; it does nothing if its file is complete. In the last step a
task is a shard, so this step can use at most as many workers as there are shards.
"""

import json
import logging
import os
import re
import shlex
from collections.abc import Iterator
from typing import Any

import apache_beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.workers import num_cores
from albert_tf.data_prep.pretraining import blocks, shards
from albert_tf.data_prep.pretraining.blocks import Block, Counts, Inputs, Job
from albert_tf.data_prep.pretraining.plan import Plan, plan_shards
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings


def make_with_beam(job: Job, inputs: Inputs) -> tuple[Counts, list[Counts]]:
    """`run.make_here`, on the runner that the settings name."""
    summary_file = os.path.join(job.settings.work_folder, "summary.json")
    pipeline = apache_beam.Pipeline(options=pipeline_options(job.settings))
    text_counts = (
        pipeline
        | "Inputs" >> apache_beam.Create([list(inputs)])
        | "Blocks" >> apache_beam.FlatMap(blocks.blocks_of)
        | "SpreadBlocks" >> apache_beam.Reshuffle()
        | "StoreBlocks" >> apache_beam.Map(_store_block, job)
        | "SumCounts" >> apache_beam.CombineGlobally(blocks.sum_counts)
    )
    made = (
        text_counts
        | "Plan" >> apache_beam.FlatMap(_plan, job.settings)
        | "SpreadShards" >> apache_beam.Reshuffle()
        | "MakeShards" >> apache_beam.Map(_make_shard, job)
        | "AllShards" >> apache_beam.combiners.ToList()
    )
    text = apache_beam.pvalue.AsSingleton(text_counts)
    _ = made | "Summarize" >> apache_beam.Map(_write_summary, summary_file, text)
    _run(pipeline)
    summary = files.read_json(summary_file)
    return summary["text"], summary["shards"]


def pipeline_options(settings: PretrainingDataSettings) -> PipelineOptions:
    """The options of Beam: those that `--runner` and `--num_workers` imply, followed by the user's."""
    options = [f"--runner={settings.runner.capitalize()}Runner"]
    if settings.runner == "direct":
        num_workers = settings.num_workers or num_cores()
        mode = "in_memory" if num_workers == 1 else "multi_processing"
        options += [f"--direct_num_workers={num_workers}", f"--direct_running_mode={mode}"]
        # Has no effect on a pipeline without triggers, but prevents Beam from downloading another runner (Prism).
        options += ["--allow_unsafe_triggers"]
        # The run raises a single error; the workers' logs would repeat it.
        options += ["--default_sdk_harness_log_level=CRITICAL"]
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    return PipelineOptions([*options, *shlex.split(settings.pipeline_options)])


def _store_block(block: Block, job: Job) -> Counts:
    return blocks.store_block(job, block)


def _plan(
    text_counts: dict[str, Any], settings: PretrainingDataSettings
) -> Iterator[tuple[Plan, int]]:
    plan = plan_shards(settings, text_counts)
    return ((plan, shard) for shard in range(plan.num_shards))


def _make_shard(planned: tuple[Plan, int], job: Job) -> tuple[int, Counts]:
    return planned[1], shards.make_shard(job, planned)


def _write_summary(numbered: list[tuple[int, Counts]], path: str, text_counts: Counts) -> None:
    in_order = [counts for _, counts in sorted(numbered, key=lambda shard: shard[0])]
    files.write_bytes(path, json.dumps({"text": text_counts, "shards": in_order}).encode())


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
