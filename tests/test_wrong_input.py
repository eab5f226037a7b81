"""Wrong input: one line that says what to change, another status than 0, and nothing lost (docs/errors.md).

For each kind of error, the line must name the flag or the file, in a few words what is wrong with it, and no more.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys

import pytest
import safetensors.numpy
import tensorflow as tf
from official.common import distribute_utils

from albert_tf import save_pretrained
from albert_tf.model.heads import AlbertForPreTraining
from lab.experiments import development_set
from tests.formats.test_pretrained import files_at_most
from tests.helpers import (
    ROOT,
    TINY,
    data_program_here,
    error_of,
    pretrain_here,
    random_features,
    run_script,
    the_line,
    without_checksums,
    write_records,
)

pytestmark = [
    pytest.mark.usefixtures("eagerly"),
    pytest.mark.filterwarnings("ignore:.*run_functions_eagerly.*:UserWarning"),
]
SPLIT, TRAIN_SPM, CREATE = "split_sentences", "train_sentencepiece", "create_pretraining_data"
PROGRAMS = pytest.mark.parametrize("program", [SPLIT, TRAIN_SPM, CREATE])


def snapshot(folder: pathlib.Path) -> dict[str, bytes]:
    """Every file below a folder, with its content."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


SHORT = ("--train_batch_size=6", "--num_train_steps=4", "--num_warmup_steps=1")
SHORT += ("--log_every_steps=1", "--save_checkpoints_steps=2")


@pytest.fixture
def run_flags(records_file, config_file):
    """A function that gives the flags of a run of four steps that saves every two."""

    def flags(folder: pathlib.Path) -> list[str]:
        inputs = [f"--input_file={records_file}", f"--albert_config_file={config_file}"]
        return [*inputs, *SHORT, f"--output_dir={folder}"]

    return flags


@pytest.fixture
def error_with(run_flags, tmp_path):
    """A function that pretrains with some flags more and returns the one line of the error."""
    return lambda *flags: error_of(pretrain_here, *run_flags(tmp_path / "run"), *flags)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """The folder of a run with the flags of `run_flags`; copy it to change it."""
    folder = tmp_path_factory.mktemp("runs")
    records_file = write_records(folder / "records" / "examples.tfrecord", random_features(60))
    (folder / "albert_config.json").write_text(TINY.to_json_string())
    inputs = [f"--input_file={records_file}", f"--albert_config_file={folder}/albert_config.json"]
    pretrain_here(*inputs, *SHORT, f"--output_dir={folder / 'run'}")
    return folder / "run"


@pytest.fixture
def finished_run(run_flags, run_folder, tmp_path):
    """Flags of a run that has finished, with checkpoints of steps 2 and 4; it is in `run`."""
    shutil.copytree(run_folder, tmp_path / "run")
    return run_flags(tmp_path / "run")


# --- Flags: rejected before TensorFlow is imported


def test_the_replacement_of_tensorflow_is_imported_by_a_right_command(no_tensorflow, records_file):
    flags = [f"--input_file={records_file}", "--model=albert-base-v2", "--output_dir=never"]
    process = run_script("run_pretraining.py", *flags, **no_tensorflow)
    assert "TensorFlow imported" in process.stderr


RUN = "run_pretraining.py --output_dir={out}"
TRAIN = f"{RUN} --input_file={{records}}"
# Flags, and what the line must say. tests/core/test_wrong_flags.py tries wrong values of every flag.
WRONG_FLAGS = {
    RUN: "--input_file is required to train",
    TRAIN: "--model or --albert_config_file",
    f"{RUN} --model=albert-base-v2 --do_train=false": "--eval_file is required",
    f"{TRAIN} --init_checkpoint=https://tfhub.dev/google/albert_base/1": "; download it",
    "run_pretraining.py --train_batchsize=8": (
        "--train_batchsize is not a flag of this program; did you mean --train_batch_size?"
    ),
    "run_pretraining.py --train_step=5 --nodo_train --output_dir": (
        "Missing value for flag --output_dir | --train_step is not a flag of this program; --num_tra"
    ),
    f"{RUN} --train_batch_size=0": "--train_batch_size must be at least 1, got 0",
    f"{RUN} records/": "'records/' is not a flag; write --name=value",
    f"{RUN} --model=albert-base-v2 --albert_config_file={{records}}": "--model and --albert_config",
    f"{RUN} --tpu_name=pod --distribution_strategy=mirrored": "--tpu_name contradicts",
    f"{RUN} --distribution_strategy=multi_worker_mirrored --worker_hosts=a:22,b": "--worker_hosts",
    f"{RUN} --num_devices=2 --distribution_strategy=one_device": "--num_devices (2) contradicts",
    "run_pretraining.py --output_dir={folder} --init_checkpoint={records} --overwrite_output_dir": (
        "--overwrite_output_dir would delete --init_checkpoint="
    ),
    f"{SPLIT} --input_file=README.md": "--output_file",
    f"{SPLIT} --output_file=o --input_file=README.md --eval_fraction=0.1": "--eval_output_file",
    f"{CREATE} --input_file=README.md --output_dir=o": "--spm_model_file or --vocab_file",
}


@pytest.mark.parametrize("command", WRONG_FLAGS)
def test_a_wrong_flag_stops_before_tensorflow_is_imported(
    command, no_tensorflow, records_file, tmp_path
):
    out = tmp_path / "run"
    names = {"records": records_file, "folder": records_file.parent, "out": out}
    program, *flags = command.format(**names).split()
    script = program if program.endswith(".py") else f"-m data_prep.{program}"
    process = run_script(script, *flags, **no_tensorflow)
    line = the_line(process)
    assert line.startswith(f"{program.removesuffix('.py')}.py: ") and WRONG_FLAGS[command] in line
    assert process.returncode == 2
    assert not out.exists()


# --- Text


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> pathlib.Path:
    """A text of 40 documents, one sentence per line."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    generator = random.Random(7)
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    words = ["".join(generator.choices(syllables, k=3)) for _ in range(200)]
    sentences = [f"{' '.join(generator.choices(words, k=8))}." for _ in range(120)]
    documents = ["\n".join(sentences[first : first + 3]) for first in range(0, 120, 3)]
    path.write_text("\n\n".join(documents) + "\n")
    return path


@pytest.fixture(scope="session")
def vocabulary(corpus) -> pathlib.Path:
    """A SentencePiece model of 60 tokens."""
    prefix = f"--output_prefix={corpus.parent / 'spm'}"
    data_program_here(TRAIN_SPM, f"--input_file={corpus}", prefix, "--vocab_size=60")
    return corpus.parent / "spm.model"


@pytest.fixture
def program_on(tmp_path, vocabulary):
    """A function that runs a data program on a text; all that it writes is below `out`."""
    out = tmp_path / "out"
    outputs = {
        SPLIT: [f"--output_file={out / 'corpus.txt'}", "--num_workers=1"],
        TRAIN_SPM: [f"--output_prefix={out / 'spm'}", "--vocab_size=60"],
        CREATE: [
            *(f"--output_dir={out}", f"--spm_model_file={vocabulary}", "--num_workers=1"),
            *("--max_seq_length=32", "--dupe_factor=2", "--max_predictions_per_seq=5"),
        ],
    }

    def run(program: str, text: bytes | pathlib.Path, *flags) -> None:
        path = text
        if isinstance(text, bytes):
            path = tmp_path / "text.txt"
            path.write_bytes(text)
        data_program_here(program, f"--input_file={path}", *outputs[program], *flags)

    return run


@pytest.mark.parametrize("content", [b"", b"not a model at all", b"\x0a\xff\xff"])
def test_no_sentencepiece_model(content, program_on, corpus, tmp_path, error_with):
    path = tmp_path / "wrong.model"
    path.write_bytes(content)
    message = f"{path}: is neither a SentencePiece model nor a WordPiece vocabulary"
    assert message in error_of(program_on, CREATE, corpus, f"--spm_model_file={path}")
    assert message in error_with(f"--spm_model_file={path}")
    assert not (tmp_path / "out").exists() and not (tmp_path / "run").exists()


DEEP, HALF = "[" * 100_000, r'"\ud800"'
# Content, and what the line says after the path; pages and objects: tests/data_prep/test_split_sentences.py.
WRONG_TEXT = {
    "deep": ('{"text": ' + DEEP, ":1: not usable as JSON (nested too deeply)"),
    "half a pair": (f'{{"text": {HALF}}}', ":1: not usable as JSON (half a surrogate pair"),
    "a number as text": ('{"text": 7}', ":1: expected an object with a text"),
    "UTF-16": ("Anna saw Bert.\n".encode("utf-16"), "is UTF-16"),
    "CR alone": ("Anna saw Bert.\rBert ran.\r", "end in CR alone"),
    "binary": (bytes(range(256)) * 9, "not UTF-8"),
}


@pytest.mark.parametrize("case", WRONG_TEXT)
def test_a_text_of_another_form(case, program_on, tmp_path):
    content, reason = WRONG_TEXT[case]
    content = content if isinstance(content, bytes) else content.encode()
    programs = [SPLIT, CREATE] if case in ("UTF-16", "CR alone") else [SPLIT]
    for program in programs:
        line = error_of(program_on, program, content)
        assert str(tmp_path / "text.txt") in line and reason in line


@pytest.mark.parametrize("name", ["squad", "race"])
def test_passages_of_another_form(name, vocabulary, tmp_path):
    wrong = {
        "squad": ['{"data": [{"paragraphs": [{"context": 7}]}]}', '{"data": 7}', "[]", DEEP, HALF],
        "race": ['{"article": 7}', "{}", "[]", DEEP, '{"article": "\\ud800"}'],
    }
    path = tmp_path / "in" / "1.txt"
    path.parent.mkdir()
    source = {"squad": {"squad_file": str(path)}, "race": {"race_dir": str(path.parent)}}[name]
    output_dir = str(tmp_path / "out")
    settings = development_set.IntrinsicSettings(
        output_dir=output_dir, spm_model_file=str(vocabulary), **source
    )
    for content in wrong[name]:
        path.write_text(content)
        assert str(path) in error_of(development_set.make, settings)


# --- Standard output


@pytest.mark.parametrize("flags", ["--help", ""], ids=["help", "output"])
@pytest.mark.parametrize("output", ["full", "closed", "gone"])
def test_output_that_nobody_can_read(output, flags, tmp_path):
    program = (
        "import dataclasses, sys\n"
        "from albert_tf.core import flags, settings\n"
        "@dataclasses.dataclass(frozen=True, kw_only=True)\n"
        "class Lines(settings.Settings):\n"
        "    lines: int = settings.setting(9000, 'Lines.')\n"
        "flags.run(lambda s: [print('x' * 99) for _ in range(s.lines)], Lines)\n"
    )
    (tmp_path / "program.py").write_text(program)
    redirection = {"full": "> /dev/full", "closed": "| head -1 > /dev/null", "gone": ">&-"}[output]
    process = in_bash(f"{tmp_path}/program.py {flags} {redirection}", PYTHONPATH=str(ROOT))
    # The help fits into the pipe: its reader may end before or after the help is written.
    if output == "closed" and flags:
        assert process.returncode in (0, 128 + signal.SIGPIPE) and not process.stderr
        return
    if output == "gone":
        assert process.returncode == 0 and not process.stderr
        return
    assert process.returncode == 1
    reason = {"full": "No space left on device", "closed": "Broken pipe"}[output]
    assert process.stderr == f"program.py: standard output cannot be written ({reason})\n"


def in_bash(command: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs Python as a command of a shell, with redirections."""
    command = f"set -o pipefail; {sys.executable} {command}"
    environment = {**os.environ, **environment}
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_predict_without_standard_input(no_tensorflow):
    process = in_bash("-m albert_tf.predict docs <&-", **no_tensorflow)
    assert "standard input is closed" in the_line(process)


# --- Records


def with_metadata(path: pathlib.Path, num_examples: int, **values) -> pathlib.Path:
    """Puts metadata beside a record file; returns the folder."""
    shard = {"file": path.name, "examples": num_examples, "records": num_examples}
    shard["bytes"] = path.stat().st_size
    (path.parent / "metadata.json").write_text(json.dumps({**values, "shards": [shard]}))
    return path.parent


def test_records_with_tokens_beyond_the_vocabulary(error_with, records_file, tmp_path):
    path = write_records(tmp_path / "big.tfrecord", random_features(30, vocab_size=120))
    line = error_with(f"--input_file={path}")
    assert line.startswith("--input_file: has ") and "vocab_size 101" in line
    folder = with_metadata(records_file, 60, vocab_size=30000)
    line = error_with(f"--input_file={folder}")
    assert "--input_file has 30000, the model has 101" in line


def test_records_of_another_vocabulary(error_with, records_file, vocabulary, tmp_path):
    with_metadata(records_file, 60, spm_sha256="a")
    path = write_records(tmp_path / "eval" / "a.tfrecord", random_features(6))
    with_metadata(path, 6, spm_sha256="b")
    line = error_with(f"--eval_file={path}")
    assert line.startswith(
        "spm_sha256 must be the same everywhere: --input_file has a, --eval_file"
    )
    line = error_with(f"--spm_model_file={vocabulary}")
    assert f"--input_file has a, {vocabulary} has " in line
    model = tmp_path / "model"
    save_pretrained(AlbertForPreTraining(TINY), model, spm_model_file=str(vocabulary))
    line = error_with(f"--init_checkpoint={model}")
    assert f"--input_file has a, {model / 'spiece.model'} has " in line


def flip_bit_in_record(path: pathlib.Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    position = 0
    for _ in range(number):
        position += 16 + struct.unpack("<Q", data[position : position + 8])[0]
    data[position + 40] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_that_is_read_while_training(error_with, tmp_path, run_flags):
    # The first 1000 records are looked at before the run starts; without shuffling, step 4 takes the next.
    path = write_records(tmp_path / "many.tfrecord", random_features(1100))
    intact = path.read_bytes()
    flip_bit_in_record(path, 1050)
    flags = [f"--input_file={path}", "--shuffle_buffer_examples=1"]
    flags += ["--train_batch_size=350", "--num_train_steps=5", "--save_checkpoints_steps=3"]
    line = error_with(*flags)
    assert line.startswith(f"damaged records: {path} (record 1050: corrupted record at")
    assert (tmp_path / "run" / "checkpoints" / "step-3.index").exists()
    path.write_bytes(intact)
    results = pretrain_here(*run_flags(tmp_path / "run"), *flags)
    assert results["steps_in_this_process"] == 2


def test_a_later_file_of_other_records(error_with, tmp_path):
    write_records(tmp_path / "two" / "a.tfrecord", random_features(90))
    other = random_features(30)
    other["input_ids"] = other["input_ids"][:, :-1]
    path = write_records(tmp_path / "two" / "b.tfrecord", other)
    line = error_with(f"--input_file={tmp_path / 'two'}", "--shuffle_buffer_examples=1", "--num_train_steps=20")
    assert line.startswith(f"damaged records: {path} (record 0: ")


@pytest.mark.parametrize("content", [b"", b"just text, and no record", b"\x00" * 100])
def test_no_record_file(content, error_with, tmp_path):
    path = tmp_path / "wrong.tfrecord"
    path.write_bytes(content)
    assert error_with(f"--input_file={path}").startswith("--input_file")
    assert not (tmp_path / "run").exists()


def test_folders_without_record_files(error_with, records_file, tmp_path):
    assert "no record files there" in error_with(f"--input_file={tmp_path}")
    (tmp_path / "data" / "a.tfrecord").mkdir(parents=True)
    assert "a.tfrecord is a folder" in error_with(f"--input_file={tmp_path / 'data'}")
    for content in ("{", "[1]"):
        (records_file.parent / "metadata.json").write_text(content)
        assert "metadata.json" in error_with()


def test_records_of_another_schema(error_with, tmp_path):
    features = random_features(6)
    del features["masked_lm_ids"]
    path = write_records(tmp_path / "other.tfrecord", features)
    assert f"{path} has no feature 'masked_lm_ids'" in error_with(f"--input_file={path}")


def test_lengths_that_contradict_the_records(error_with, records_file, config_file):
    line = error_with("--max_seq_length=12")
    assert "--input_file has 11, the flag has 12" in line
    assert "the flag has 5" in error_with("--max_predictions_per_seq=5")
    config_file.write_text(TINY.replace(max_position_embeddings=10).to_json_string())
    line = error_with()
    assert "has 11 tokens in a row" in line and "10 positions" in line


# --- The model's configuration and the initial checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    """The tiny model as a folder."""
    save_pretrained(AlbertForPreTraining(TINY, seed=3), tmp_path / "model")
    return without_checksums(tmp_path / "model")


def test_a_checkpoint_without_an_encoder_variable(error_with, checkpoint, finished_run, tmp_path):
    path = checkpoint / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    del tensors["albert.pooler.weight"]
    safetensors.numpy.save_file(tensors, path)
    before = snapshot(tmp_path / "run")
    line = error_with(f"--init_checkpoint={checkpoint}", "--overwrite_output_dir")
    assert "1 of the encoder's variables" in line and "bert/pooler/dense/kernel" in line
    assert snapshot(tmp_path / "run") == before, "a command that cannot work deleted the run"


# --- The run's folder


@pytest.mark.parametrize("flag", ["--nooverwrite_output_dir", "--overwrite_output_dir"])
def test_a_folder_of_other_files(flag, error_with, tmp_path, checkpoint):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    for folder in (tmp_path / "run", checkpoint):  # a model's folder holds a config.json too
        before = snapshot(folder)
        line = error_with(f"--output_dir={folder}", flag)
        assert f"--output_dir={folder} contains files that do not belong to a run" in line
        assert snapshot(folder) == before


def test_overwriting_a_run_leaves_other_files(finished_run, tmp_path):
    (tmp_path / "run" / "notes.txt").write_text("mine")
    changes = ["--learning_rate=0.5", "--overwrite_output_dir", "--stop_after_steps=1"]
    pretrain_here(*finished_run, *changes)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    names = {path.name for path in (tmp_path / "run" / "checkpoints").glob("*.index")}
    assert names == {"step-1.index"}


def test_a_folder_that_cannot_be_written(error_with, tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    assert error_with(f"--output_dir={file}").startswith(f"--output_dir={file} is a file")
    assert "cannot be written" in error_with(f"--output_dir={file / 'run'}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(error_with, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "cannot be written" in error_with(f"--output_dir={tmp_path / 'locked' / 'run'}")


@PROGRAMS
def test_an_output_below_a_file(program, program_on, corpus, tmp_path):
    (tmp_path / "out").write_text("no folder")
    assert str(tmp_path / "out") in error_of(program_on, program, corpus)
    assert (tmp_path / "out").read_text() == "no folder"


def test_what_the_program_prints_once_tensorflow_is_loaded(finished_run, tmp_path):
    path = tmp_path / "run" / "checkpoints" / "step-4.data-00000-of-00001"
    path.write_bytes(b"x" * path.stat().st_size)
    process = run_script("run_pretraining.py", *finished_run)
    start = f"run_pretraining.py: {tmp_path / 'run'}/checkpoints/step-4: "
    assert the_line(process).startswith(start)
    assert process.returncode == 1


# --- Devices


def test_a_batch_that_the_devices_cannot_share(error_with):
    line = error_with("--train_batch_size=8", "--gradient_accumulation_steps=3")
    assert line.startswith("--train_batch_size must be a multiple") and "1 x 3" in line
    mirrored = ["--distribution_strategy=mirrored"]
    assert "2 x 1; got 7" in error_with("--train_batch_size=7", *mirrored)
    assert error_with("--eval_batch_size=7", *mirrored).startswith(
        "--eval_batch_size must be a mult"
    )


def test_more_devices_than_there_are(error_with, monkeypatch):
    mirrored = ["--distribution_strategy=mirrored", "--num_devices=5"]
    assert "--num_devices=5: this process already has 2 CPU devices" in error_with(*mirrored)
    real = tf.config.list_physical_devices
    gpus = {"GPU": ["gpu 0", "gpu 1"]}
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind=None: gpus.get(kind) or real(kind)
    )
    assert error_with(*mirrored) == "--num_devices is 5, but the machine has 2 GPUs"


def test_a_tpu_that_cannot_be_reached(error_with, monkeypatch):
    line = error_with("--distribution_strategy=tpu", "--tpu_name=local")
    assert line == "--tpu_name is local, but this machine has no TPU"

    def fail(**_):
        raise OSError("Name or service not known")

    monkeypatch.setattr(distribute_utils, "get_distribution_strategy", fail)
    assert error_with("--tpu_name=nowhere").startswith(
        "--tpu_name 'nowhere' cannot be reached (Name"
    )


# --- A full disk


@PROGRAMS
def test_a_data_program_and_a_file_that_cannot_grow(program, program_on, corpus, tmp_path):
    program_on(program, corpus)
    before = snapshot(tmp_path / "out")
    if program == CREATE:  # would say that all is there already
        shutil.rmtree(tmp_path / "out")
    with files_at_most(6000):
        line = error_of(program_on, program, corpus)
    assert str(tmp_path / "out") in line and "cannot be written (File too large)" in line
    if program == CREATE:  # it goes on from the text that it has read
        assert {path.name for path in (tmp_path / "out").iterdir()} == {".unfinished"}
    else:
        assert snapshot(tmp_path / "out") == before
    program_on(program, corpus)
    assert snapshot(tmp_path / "out") == before
