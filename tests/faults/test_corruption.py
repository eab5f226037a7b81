"""Whatever happens to a file that a program reads: one line that names it, or the same result; never other numbers.

A table of kinds of files x damages. `make test` tries a sample; ALBERT_TEST_FAULTS=all tries all (`make test-faults`).
Files of other programs have no checksums: there, a damage may also give other data, but no traceback and no hang.
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import shutil
import signal
import types
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertForSequenceClassification, glue_submission, save_pretrained
from albert_tf.core import checksums
from albert_tf.core.errors import UserError
from albert_tf.data.reading import first_batches
from albert_tf.data.record_formats import record_writer
from albert_tf.data.record_set import find_pretraining_records
from albert_tf.data_prep import split_sentences, train_sentencepiece
from albert_tf.data_prep.pretraining import blocks
from albert_tf.data_prep.pretraining.run import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.export import export_model
from albert_tf.serving import exports
from albert_tf.tasks import registry
from albert_tf.tasks.squad.task import THRESHOLD_FILE, SquadTask
from lab.experiments import development_set, intrinsic
from lab.experiments.engine import Result
from lab.experiments.recorded import read_result
from tests.faults.damages import DAMAGES
from tests.helpers import (
    RUNNERS,
    TINY,
    TRIES_ALL,
    fine_tuning_settings,
    made_up_text,
    train_spm,
)

SAMPLE = 17  # every which case is tried otherwise
SECONDS = 60  # a reader that takes longer hangs
END_BYTES = 300  # that a fingerprint covers here: shards are small, and their middle must be out of its reach


# --- What is damaged ---


@dataclasses.dataclass(frozen=True)
class Kind:
    """Files that belong together."""

    files: tuple[str, ...]  # paths in the folder of a run
    # (inputs, folder, seed) writes them; another seed makes files of the same names.
    make: Callable[["Inputs", pathlib.Path, int], None]
    read: Callable[["Inputs", pathlib.Path], object]  # gives what a program makes of them
    is_ours: bool = True  # whether the files have checksums


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What the programs read besides the files that are damaged."""

    folder: pathlib.Path
    spm: str
    task_files: pathlib.Path
    task_flags: dict
    pretrained: pathlib.Path


SHARDS = tuple(f"pretraining-0000{shard}-of-00002.tfrecord" for shard in range(2))
TEXT = "text.txt"


def record_settings(inputs, folder, seed, **changes) -> PretrainingDataSettings:
    values = {"input_file": str(inputs.folder / TEXT), "spm_model_file": inputs.spm}
    values |= {"max_seq_length": 32, "max_predictions_per_seq": 5, "dupe_factor": 1}
    values |= {"record_format": "full", "num_shards": 2, "num_workers": 1, "random_seed": seed}
    return PretrainingDataSettings(output_dir=str(folder), **{**values, **changes})


def make_records(inputs, folder, seed, **changes):
    create_pretraining_data(record_settings(inputs, folder, seed, **changes))


def arrays_of(record_set, schema) -> list[np.ndarray]:
    batches = first_batches(record_set, schema, 16)
    return [value.numpy() for batch in batches for _, value in sorted(batch.items())]


def read_records(_inputs, folder):
    record_set = find_pretraining_records(str(folder), "input_file")
    return record_set.schema, arrays_of(record_set, record_set.schema)


def make_killed_run(inputs, folder, seed):
    """The folder of a run of several blocks that was killed when its second shard was to be written."""
    encode, shards = record_writer.encode_examples, []

    def killed(features, lengths):
        shards.append(None)
        if len(shards) == 3:  # the first call compiles the functions
            raise KeyboardInterrupt
        return encode(features, lengths)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(record_writer, "encode_examples", killed)
        make_records(inputs, folder, seed)


def check_run(inputs, folder):
    return create_pretraining_data(record_settings(inputs, folder, 1))


def finish_run(inputs, folder):
    metadata, _ = check_run(inputs, folder)
    return metadata, [(folder / name).read_bytes() for name in SHARDS]


def make_passages(inputs, folder, seed):
    settings = development_set.IntrinsicSettings(
        **{"input_file": str(inputs.folder / TEXT), "output_dir": str(folder)},
        **{"spm_model_file": inputs.spm, "random_seed": seed},
        **{"max_seq_length": 32, "max_predictions_per_seq": 5},
    )
    development_set.make(settings)


def read_passages(_inputs, folder):
    model = types.SimpleNamespace(config=TINY.replace(vocab_size=60, max_position_embeddings=32))
    outputs = [
        intrinsic.run_over(lambda features: features, model, str(folder / task), 0)
        for task in ("none", "sop")
    ]
    return [value for output in outputs for _, value in sorted(output.items())]


def make_corpus(_inputs, folder, seed):
    text = made_up_text(20, seed=seed)
    (folder / TEXT).write_text(text)
    documents = [json.dumps({"text": document}) for document in text.split("\n\n")]
    (folder / "documents.jsonl").write_text("\n".join(documents))


def read_text(inputs, folder):
    make_records(inputs, folder / "records", 1, input_file=str(folder / TEXT))
    return read_records(inputs, folder / "records")


def read_documents(_inputs, folder):
    output = folder / "sentences.txt"
    settings = split_sentences.SplitSettings(
        input_file=str(folder / "documents.jsonl"), output_file=str(output), num_workers=1
    )
    split_sentences.main(settings)
    return output.read_bytes()


def train_vocabulary(_inputs, folder):
    settings = train_sentencepiece.TrainSettings(
        input_file=str(folder / TEXT), output_prefix=str(folder / "spiece"), vocab_size=60
    )
    train_sentencepiece.main(settings)
    return (folder / "spiece.vocab").read_bytes()


def copy_task_files(inputs, folder, seed):
    """The files of every task; another seed changes nothing, as foreign files may be anything."""
    shutil.copytree(inputs.task_files, folder, dirs_exist_ok=True)


def read_split(inputs, folder, *, task, split):
    runner, flags = inputs.task_flags[task]
    flags = [flag.replace(str(inputs.task_files), str(folder)) for flag in flags]
    _, _, config = fine_tuning_settings(runner, *flags, "--output_dir=unused", "--do_predict")
    source = registry.resolve(RUNNERS[runner].source)
    return repr(source(config).read(split))


def make_threshold(_inputs, folder, seed):
    raw = f"predictions {seed}".encode()
    values = {"null_threshold": -1.25 * seed, "predictions_sha256": hashlib.sha256(raw).hexdigest()}
    (folder / "predictions").mkdir()
    (folder / "predictions" / "eval.npz").write_bytes(raw)
    (folder / THRESHOLD_FILE).write_bytes(checksums.json_file(values))


def read_threshold(_inputs, folder):
    run = types.SimpleNamespace(output_dir=str(folder), init_checkpoint="")
    task = types.SimpleNamespace(config=types.SimpleNamespace(null_threshold="best"), run=run)
    return SquadTask._threshold(task)[0]


def make_answers(_inputs, folder, seed):
    answers = {name: glue_submission.constant_answers(name) for name in ("RTE.tsv", "WNLI.tsv")}
    label = {1: b"entailment", 2: b"not_entailment"}[seed]
    answers["RTE.tsv"] = answers["RTE.tsv"].replace(b"\tnot_entailment", b"\t" + label)
    answers["WNLI.tsv"] = answers["WNLI.tsv"].replace(b"\t1", b"\t0", seed)
    (folder / "predictions").mkdir()
    for name, content in checksums.with_sums(answers).items():
        (folder / "predictions" / name).write_bytes(content)


def make_result(_inputs, folder, seed):
    about = {"row": f"Row {seed}", "seed": 3, "declared": {"steps": 9}}
    path = folder / f"row-{seed}-seed3.json"
    Result(str(path), about, str(folder / "lock")).add("speed", {"median": 2.5 * seed}, 1.5)
    path.rename(folder / "row-1-seed3.json")


def read_measures(_inputs, folder):
    return read_result(str(folder / "row-1-seed3.json"))["measures"]


def make_export(inputs, folder, seed, **options):
    labels = TINY.replace(vocab_size=60, num_hidden_layers=1, max_position_embeddings=16)
    model = AlbertForSequenceClassification(labels.with_labels(["yes", "no"], "mine"), seed=seed)
    source = folder.parent / f"model-{seed}"
    save_pretrained(model, source, spm_model_file=inputs.spm)
    export_model(str(source), str(folder), **options)


def read_export(_inputs, folder):
    answer = exports.load(str(folder / "1")).signatures["serving_default"]
    texts = {name: tf.constant(["Kalo miter.", ""]) for name in ("text_a", "text_b")}
    outputs = answer(**texts)
    # Rounded, as the order of additions differs from run to run.
    return outputs["label"].numpy().tolist(), np.round(outputs["probabilities"].numpy(), 4)


def make_export_without_sums(inputs, folder, seed):
    make_export(inputs, folder, seed)
    (folder / "1" / "SHA256SUMS").unlink()


RECORDS = ("metadata.json", *SHARDS)
UNFINISHED = (
    SHARDS[0],
    *(f".unfinished/{name}.json" for name in ("settings", "block-000000", SHARDS[0])),
    *(f".unfinished/block-{index:06d}" for index in range(2)),
)
VARIABLES = ("1/variables/variables.index", "1/variables/variables.data-00000-of-00001")
SAVED_MODEL = (
    *("1/saved_model.pb", "1/fingerprint.pb", "1/SHA256SUMS", *VARIABLES),
    *(f"1/assets/{name}" for name in ("albert_config.json", "export.json", "spiece.model")),
    "1/assets.extra/tf_serving_warmup_requests",
)
TFLITE = ("model.tflite", "export.json", "albert_config.json", "spiece.model", "SHA256SUMS")
PACKED = {"record_format": "packed"}
KINDS = {
    "full records": Kind(RECORDS, make_records, read_records),
    "packed records": Kind(RECORDS, functools.partial(make_records, **PACKED), read_records),
    "dynamic records": Kind(
        RECORDS, functools.partial(make_records, **PACKED, masking="dynamic"), read_records
    ),
    "compressed records": Kind(
        ("metadata.json", *(f"{name}.gz" for name in SHARDS)),
        functools.partial(make_records, compression="gzip"),
        read_records,
    ),
    "finished records": Kind(RECORDS, make_records, check_run),
    "unfinished records": Kind(UNFINISHED, make_killed_run, finish_run),
    "development set": Kind(
        tuple(f"{task}/{name}" for task in ("none", "sop") for name in RECORDS[:1]),
        make_passages,
        read_passages,
    ),
    "null threshold": Kind((THRESHOLD_FILE,), make_threshold, read_threshold),
    "answers for GLUE": Kind(
        tuple(f"predictions/{name}.tsv" for name in ("RTE", "WNLI")),
        make_answers,
        lambda _inputs, folder: glue_submission.collect(str(folder)),
    ),
    "result of an experiment": Kind(("row-1-seed3.json",), make_result, read_measures),
    "export": Kind(SAVED_MODEL, make_export, read_export),
    "export without checksums": Kind(VARIABLES, make_export_without_sums, read_export),
    "TFLite export": Kind(
        TFLITE,
        functools.partial(make_export, format="tflite"),
        lambda _inputs, folder: exports.read_tflite(str(folder / "model.tflite")),
    ),
    "corpus": Kind((TEXT,), make_corpus, read_text, is_ours=False),
    "documents": Kind(("documents.jsonl",), make_corpus, read_documents, is_ours=False),
    "text for a vocabulary": Kind((TEXT,), make_corpus, train_vocabulary, is_ours=False),
}
TASK_FILES = {
    "GLUE": ("mrpc", "train", "glue/MRPC/train.tsv"),
    "own table": ("tsv", "eval", "tsv/dev.tsv"),
    "SQuAD 1.1": ("squad1.1", "train", "squad/train-v1.1.json"),
    "SQuAD 2.0": ("squad2.0", "eval", "squad/dev-v2.0.json"),
    "RACE": ("race", "train", "RACE/train/high/1.txt"),
    "tagged words": ("tagging", "train", "tagging/train.conll"),
}
for name, (task, split, path) in TASK_FILES.items():
    read = functools.partial(read_split, task=task, split=split)
    KINDS[name] = Kind((path,), copy_task_files, read, is_ours=False)
SLOW = {"export", "export without checksums", "TFLite export"}  # TensorFlow builds their graphs

CASES = [
    (kind, file, damage)
    for kind, what in KINDS.items()
    for file in what.files
    for damage in DAMAGES
    if TRIES_ALL or kind not in SLOW
]


# --- The test ---


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, task_files, task_flags, tiny_pretrained) -> Inputs:
    folder = tmp_path_factory.mktemp("inputs")
    make_corpus(None, folder, 5)
    text = [*(folder / TEXT).read_text().lower().splitlines(), "a, b, c"]
    spm = train_spm(folder / "spiece.model", text, vocab_size=60)
    return Inputs(folder, spm, task_files, task_flags, tiny_pretrained)


@pytest.fixture(scope="module", autouse=True)
def small_parts() -> Iterator[None]:
    """Fingerprints that do not cover all of a small file, and several blocks of little text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksums, "_END_BYTES", END_BYTES)
        patch.setattr(blocks, "BLOCK_BYTES", 2000)
        yield


@pytest.fixture(scope="module")
def runs(inputs, tmp_path_factory):
    """A function that gives two runs of a kind and what is read of the first."""

    @functools.cache
    def of_kind(name: str):
        folder = tmp_path_factory.mktemp("runs")
        for seed in (1, 2):
            (folder / str(seed)).mkdir()
            KINDS[name].make(inputs, folder / str(seed), seed)
        copy = shutil.copytree(folder / "1", folder / "copy")
        return folder / "1", folder / "2", digest(KINDS[name].read(inputs, copy))

    return of_kind


def digest(value: object) -> str:
    if isinstance(value, np.ndarray):
        text = f"{value.dtype} {value.shape}".encode() + value.tobytes()
    elif isinstance(value, dict):
        text = "".join(f"{key} {digest(value[key])}" for key in sorted(value)).encode()
    elif isinstance(value, list | tuple):
        text = "".join(map(digest, value)).encode()
    else:
        text = repr(value).encode()
    return hashlib.sha256(text).hexdigest()


@contextlib.contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def figures(request) -> Iterator[collections.Counter]:
    counts = collections.Counter()
    yield counts
    outcomes = {kind: {} for kind, _ in sorted(counts)}
    for (kind, outcome), count in counts.items():
        outcomes[kind][outcome] = count
    manager = request.config.pluginmanager.get_plugin("capturemanager")
    with manager.global_and_fixture_disabled():
        for kind, numbers in outcomes.items():
            print(f"\n{kind}: {sum(numbers.values())} damages, {numbers}", end="")


@pytest.mark.parametrize(("kind", "file", "damage"), CASES if TRIES_ALL else CASES[::SAMPLE])
def test_a_damaged_file_is_rejected_by_name_or_changes_nothing(
    kind, file, damage, inputs, runs, figures, tmp_path
):
    what = KINDS[kind]
    run, other, expected = runs(kind)
    folder = shutil.copytree(run, tmp_path / "run")
    DAMAGES[damage](folder / file, other / file)
    try:
        with no_longer_than(SECONDS):
            found = digest(what.read(inputs, folder))
    except UserError as error:
        outcome = "rejected"
        line = str(error)
        assert line and len(line.splitlines()) == 1
        assert any(part in line for part in (os.path.basename(file), str(folder))), line
    else:
        outcome = "the same" if found == expected else "other"
    figures[kind, outcome] += 1
    figures["all files", outcome] += 1
    assert outcome != "other" or not what.is_ours
