"""A run of create_pretraining_data: its beginning, the engine on this machine, and its end.

1. `blocks.store_block` tokenizes each block of the text, plans its pairs, and stores and counts both.
2. The counts determine the shards (`plan.py`). `shards.make_shard` takes the examples of a shard from the stored
   blocks, shuffles them and writes their records.
3. `create_pretraining_data` writes the metadata.

An engine (`engines/`) calls the functions of the first two steps: with processes of this machine, each with about 200
MB, or on a cluster. The result is the same, because it depends only on the text, the settings and the seed.

A block or shard is complete or absent; the same command therefore makes what an interrupted run did not. Until the end,
the folder contains `.unfinished`, with the settings of the run and the blocks.
"""

import os
from collections.abc import Mapping
from typing import Any

import albert_tf
from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locked
from albert_tf.data.pretraining_examples import Vocabulary, masking_rule, pair_rule
from albert_tf.data.record_formats.base import METADATA_FILE, add_counts
from albert_tf.data_prep import corpus
from albert_tf.data_prep.engines.choice import engine_of
from albert_tf.data_prep.pretraining import blocks, shards
from albert_tf.data_prep.pretraining.blocks import Counts, Inputs, Job
from albert_tf.data_prep.pretraining.compiled_tokenizer import CompiledTokenizer
from albert_tf.data_prep.pretraining.plan import plan_shards
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.text.tokenizer import Tokenizer

PROGRAM = "create_pretraining_data"
_OF_SHARD = ("file", "examples", "records", "bytes")  # entries of a shard in the metadata
_OF_FILE = ("file", "examples", "bytes")  # counts of a shard that are not among those of the run
_ANOTHER = "give another folder, or empty it"


def create_pretraining_data(settings: PretrainingDataSettings) -> tuple[dict[str, Any], bool]:
    """Makes the records that the settings describe, or those that an interrupted run did not make.

    Returns the content of `metadata.json`, and whether all records existed before. A UserError if the input is missing,
    empty or not UTF-8, or the folder contains other records.
    """
    make_engine = engine_of(settings)
    job = _make_job(settings)
    paths = corpus.expand_paths(settings.input_file)
    inputs = [{"file": path, "bytes": corpus.size_of(path)} for path in paths]
    identity = _identity(job, inputs)
    with locked(settings.output_dir):
        if metadata := _begin(settings, identity):
            files.remove(settings.work_folder)  # of a run that was killed at the very end
            return metadata, True
        state_file = _state_file(settings)
        prepare = shards.compile_functions
        with make_engine(settings, job, prepare=prepare, common_file=state_file) as engine:
            counts, counts_of_shards = _make_shards(job, inputs, engine)
        for counts_of_shard in counts_of_shards:
            of_run = {
                name: count for name, count in counts_of_shard.items() if name not in _OF_FILE
            }
            add_counts(counts, of_run)
        shards_made = [
            {name: counts_of_shard[name] for name in _OF_SHARD}
            for counts_of_shard in counts_of_shards
        ]
        metadata = {**identity, "counts": counts, "shards": shards_made}
        path = os.path.join(settings.output_dir, METADATA_FILE)
        files.write_bytes(path, files.json_bytes(metadata))
        files.remove(settings.work_folder)
        blocks.forget_blocks()
    return metadata, False


def _make_shards(job: Job, inputs: Inputs, engine: Any) -> tuple[dict[str, Any], list[Counts]]:
    """The sum of the counts of all blocks, and the counts of each shard."""
    num_bytes = sum(file["bytes"] for file in inputs)
    text_counts = blocks.sum_counts([])
    made = []
    with corpus.show_progress("tokenizing", num_bytes, "B") as progress:
        for counts in engine.map(blocks.store_block, blocks.blocks_of(inputs)):
            text_counts = blocks.sum_counts([text_counts, counts])
            progress.update(counts["text_bytes"])
    plan = plan_shards(job.settings, text_counts)
    planned = [(plan, shard) for shard in range(plan.num_shards)]
    with corpus.show_progress("making", text_counts["examples"], " examples") as progress:
        for counts in engine.map(shards.make_shard, planned):
            made.append(counts)
            progress.update(counts["examples"])
    return text_counts, made


# --- The beginning and the end of a run.


def _make_job(settings: PretrainingDataSettings) -> Job:
    """What every process needs."""
    tokenizer = Tokenizer.from_file(settings.vocabulary_file, **settings.cleaning)
    vocabulary = Vocabulary(
        tokenizer.word_starts(settings.word_start_rule),
        tokenizer.cls_id,
        tokenizer.sep_id,
        tokenizer.mask_id,
    )
    values = settings.to_dict()
    return Job(
        settings=settings,
        tokenizer=tokenizer,
        compiled_tokenizer=CompiledTokenizer(tokenizer),
        vocabulary=vocabulary,
        pair_rule=pair_rule(vocabulary.is_word_start, values),
        masking_rule=masking_rule(vocabulary, values),
    )


def _identity(job: Job, inputs: Inputs) -> dict[str, Any]:
    """The values that must be equal for a run to be continued; they are the first entries of the metadata."""
    settings = job.settings
    # The reader needs it to mask tokens.
    vocabulary = {"vocabulary": job.vocabulary.to_json()} if settings.masking == "dynamic" else {}
    return {
        **{name: getattr(settings, name) for name in settings.names(changes_results=True)},
        "vocab_size": job.tokenizer.vocab_size,
        "spm_sha256": job.tokenizer.sha256,
        **vocabulary,
        "version": albert_tf.__version__,
        "input_files": inputs,
    }


def _begin(settings: PretrainingDataSettings, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """Starts a run in its folder, or continues one that was interrupted; returns the metadata of a finished one."""
    folder = settings.output_dir
    metadata_file = os.path.join(folder, METADATA_FILE)
    state_file = _state_file(settings)
    path = metadata_file if files.exists(metadata_file) else state_file
    earlier = files.read_json_if_there(path)
    names = files.names_in(folder) if files.is_folder(folder) else []
    records = [name for name in names if name.endswith(".tfrecord")]
    if records and not earlier:
        raise UserError(f"{folder}: holds other records ({records[0]}); {_ANOTHER}")
    if records or path == metadata_file:
        _check_equal(folder, earlier, identity)
    if path == metadata_file:
        return earlier
    if earlier == identity:
        corpus.print_note(PROGRAM, f"resuming the run in {folder}")
    else:
        files.remove(settings.work_folder)
        files.write_bytes(state_file, files.json_bytes(identity))
    return None


def _state_file(settings: PretrainingDataSettings) -> str:
    """The file with the settings of a run that has not ended."""
    return os.path.join(settings.work_folder, "settings.json")


def _check_equal(folder: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raises a UserError that names the first value that differs."""
    for key, value in expected.items():
        if found.get(key) != value:
            difference = f"{key} was {found.get(key)}, is {value}"
            if key == "input_files":
                difference = "--input_file named other files, or they have changed"
            raise UserError(f"{folder}: holds records of another run: {difference}; {_ANOTHER}")
