"""Wrong input: one line that says what to change, another status than 0, and nothing lost (docs/errors.md)."""

import collections
import functools
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence

import pytest
import safetensors.numpy
import tensorflow as tf
from official.common import distribute_utils

from albert_tf import UserError, save_pretrained
from albert_tf.core import files as core_files
from albert_tf.data.record_metadata import shard_entry
from albert_tf.data_prep import (
    create_intrinsic_eval,
    split_sentences,
)
from albert_tf.data_prep.corpus import LineReader
from albert_tf.data_prep.pretraining import blocks
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.tasks import registry
from tests.helpers import (
    LENGTH,
    ROOT,
    TINY,
    fine_tune_here,
    fine_tuning_settings,
    pretrain_here,
    random_features,
    run_script,
    the_line,
    without_checksums,
    write_records,
)

SPLIT, TRAIN_SPM = "-m data_prep.split_sentences", "-m data_prep.train_sentencepiece"
CREATE = "-m data_prep.create_pretraining_data"
SENTENCES = ["The cat sat on the mat.", "A dog ran to the old house.", "It was late, and cold."]


def snapshot(folder: pathlib.Path) -> dict[str, bytes]:
    """Every file below a folder, with its content."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def refused(records_file, config_file, tmp_path):
    """A function that pretrains with some flags more and returns the one line of the error."""

    def run(*flags, base=True):
        common = [f"--input_file={records_file}", f"--albert_config_file={config_file}"]
        with pytest.raises(UserError) as caught:
            pretrain_here(
                *(common if base else ()), *SHORT, f"--output_dir={tmp_path / 'run'}", *flags
            )
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return run


SHORT = (
    "--train_batch_size=6",
    "--num_train_steps=4",
    "--num_warmup_steps=1",
    "--log_every_steps=1",
)


@pytest.fixture
def run_flags(records_file, config_file):
    """A function that gives the flags of a run of four steps that saves every two."""

    def flags(folder: pathlib.Path) -> list[str]:
        inputs = [f"--input_file={records_file}", f"--albert_config_file={config_file}"]
        return [*inputs, *SHORT, "--save_checkpoints_steps=2", f"--output_dir={folder}"]

    return flags


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A function that gives the folder of a run with the flags of `run_flags`; copy it to change it."""
    folder = tmp_path_factory.mktemp("runs")
    records_file = write_records(folder / "records" / "examples.tfrecord", random_features(60))
    (folder / "albert_config.json").write_text(TINY.to_json_string())
    inputs = [f"--input_file={records_file}", f"--albert_config_file={folder}/albert_config.json"]

    @functools.cache
    def run(*flags: str) -> pathlib.Path:
        path = folder / f"run{len(list(folder.iterdir()))}"
        flags = [*inputs, *SHORT, "--save_checkpoints_steps=2", *flags]
        pretrain_here(*flags, f"--output_dir={path}")
        return path

    return run


@pytest.fixture
def finished_run(run_flags, run_folder, tmp_path):
    """Flags of a run that has finished, with checkpoints of steps 2 and 4; it is in `run`."""
    shutil.copytree(run_folder(), tmp_path / "run")
    return run_flags(tmp_path / "run")


# --- Flags: refused before TensorFlow is imported


def test_the_stand_in_for_tensorflow_is_met(no_tensorflow, records_file):
    flags = [f"--input_file={records_file}", "--model=albert-base-v2", "--output_dir=never"]
    process = run_script("run_pretraining.py", *flags, **no_tensorflow)
    assert "TensorFlow imported" in process.stderr


WRONG_FLAGS = {
    "missing output_dir": (["--model=albert-base-v2"], "--output_dir is required"),
    "missing input_file": (["--output_dir=run"], "--input_file is required to train"),
    "missing model": (["--output_dir=run", "--input_file={records}"], "--model or --albert_config"),
    "evaluation without eval_file": (
        ["--output_dir=run", "--model=albert-base-v2", "--do_train=false"],
        "--eval_file is required to evaluate",
    ),
    "missing file": (
        ["--output_dir=run", "--input_file=nowhere.tfrecord"],
        "--input_file=nowhere.tfrecord: no such file",
    ),
    "missing one of two files": (
        ["--output_dir=run", "--input_file={records},nowhere*.tfrecord"],
        "--input_file=nowhere*.tfrecord: no such file",
    ),
    "missing checkpoint": (
        ["--output_dir=run", "--input_file={records}", "--init_checkpoint=nowhere"],
        "--init_checkpoint=nowhere: no such file",
    ),
    "an address of a model": (
        [
            *("--output_dir=run", "--input_file={records}"),
            "--init_checkpoint=https://tfhub.dev/google/albert_base/1",
        ],
        "--init_checkpoint=https://tfhub.dev/google/albert_base/1: cannot be downloaded here; download it",
    ),
    "a name of keras-hub": (
        ["--output_dir=run", "--input_file={records}", "--init_checkpoint=albert_base_en_uncased"],
        "--init_checkpoint=albert_base_en_uncased: no such file or folder; presets of keras-hub are",
    ),
    "missing vocabulary": (
        ["--output_dir=run", "--input_file={records}", "--spm_model_file=no.model"],
        "--spm_model_file=no.model: no such file",
    ),
    "unknown flag": (
        ["--train_batchsize=8"],
        "--train_batchsize is not a flag of this program; did",
    ),
    "near miss": (["--train_batchsize=8"], "did you mean --train_batch_size?"),
    "unlike any flag": (["--qqq=8"], "--qqq is not a flag of this program; --help lists the flags"),
    "not a number": (
        ["--train_batch_size=abc"],
        "--train_batch_size must be a whole number; got 'abc'",
    ),
    "not a truth": (["--do_train=maybe"], "--do_train must be true or false; got 'maybe'"),
    "not a choice": (["--optimizer=sgd"], "--optimizer must be one of lamb, adamw; got 'sgd'"),
    "no value": (["--output_dir"], "Missing value for flag --output_dir"),
    "no value, and an unknown flag": (
        ["--train_step=5", "--nodo_train", "--output_dir"],
        "Missing value for flag --output_dir | --train_step is not a flag of this program; --num_tra",
    ),
    "out of bounds": (
        ["--output_dir=run", "--train_batch_size=0"],
        "--train_batch_size must be at least 1, got 0",
    ),
    "not a finite rate": (
        ["--output_dir=run", "--learning_rate=nan"],
        "--learning_rate must be a finite number, got nan",
    ),
    "stray argument": (
        ["--output_dir=run", "records/"],
        "'records/' is not a flag; write --name=value",
    ),
    "two models": (
        ["--output_dir=run", "--model=albert-base-v2", "--albert_config_file={records}"],
        "--model and --albert_config_file contradict each other: give one",
    ),
    "TPU and GPUs": (
        ["--output_dir=run", "--tpu_name=pod", "--distribution_strategy=mirrored"],
        "--tpu_name contradicts --distribution_strategy=mirrored",
    ),
    "a worker without a port": (
        [
            *("--output_dir=run", "--distribution_strategy=multi_worker_mirrored"),
            "--worker_hosts=one:2222,two",
        ],
        "--worker_hosts must be host:port of every worker, got 'two'",
    ),
    "devices of one device": (
        ["--output_dir=run", "--num_devices=2", "--distribution_strategy=one_device"],
        "--num_devices (2) contradicts --distribution_strategy=one_device",
    ),
    "nothing to do": (
        ["--output_dir=run", "--do_train=false", "--do_eval=false"],
        "--do_eval or --do_train must be true: there is nothing to do",
    ),
    "warm-up beyond the end": (
        ["--output_dir=run", "--num_train_steps=10", "--num_warmup_steps=11"],
        "--num_warmup_steps (11) must end within the 10 training steps",
    ),
    "overwriting what is read": (
        ["--output_dir={folder}", "--init_checkpoint={records}", "--overwrite_output_dir"],
        "--overwrite_output_dir would delete --init_checkpoint=",
    ),
}


@pytest.mark.parametrize("case", WRONG_FLAGS)
def test_a_wrong_flag_stops_before_tensorflow_is_imported(
    case, no_tensorflow, records_file, tmp_path
):
    flags, expected = WRONG_FLAGS[case]
    names = {"records": records_file, "folder": records_file.parent}
    command = [
        sys.executable,
        ROOT / "run_pretraining.py",
        *(flag.format(**names) for flag in flags),
    ]
    process = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **no_tensorflow}, capture_output=True, text=True
    )
    line = the_line(process)
    assert line.startswith("run_pretraining.py: ") and expected in line
    assert process.returncode == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("program", "flags", "expected"),
    [
        (SPLIT, [], "--output_file is required"),
        (
            SPLIT,
            ["--output_file=o", "--input_file=nowhere.txt"],
            "--input_file=nowhere.txt: no such",
        ),
        (SPLIT, ["--input_format=pdf"], "--input_format must be one of auto, text, wikiextractor"),
        (
            SPLIT,
            ["--output_file=o", "--input_file=README.md", "--eval_fraction=0.1"],
            "--eval_output_file must be given with",
        ),
        (TRAIN_SPM, ["--vocabsize=3"], "did you mean --vocab_size?"),
        (
            TRAIN_SPM,
            ["--input_file=nowhere.txt", "--output_prefix=o"],
            "--input_file=nowhere.txt: no",
        ),
        (TRAIN_SPM, ["--vocab_size=many"], "--vocab_size must be a whole number; got 'many'"),
        (
            CREATE,
            ["--input_file=README.md", "--output_dir=o"],
            "--spm_model_file or --vocab_file is required",
        ),
        (
            CREATE,
            ["--dupe_factor=0", "--input_file=x", "--spm_model_file=x"],
            "--dupe_factor must be",
        ),
        (CREATE, ["corpus.txt"], "'corpus.txt' is not a flag; write --name=value"),
        ("-m data_prep.sample_corpus", ["--output_fil=o"], "did you mean --output_file?"),
    ],
)
def test_a_wrong_flag_of_a_data_program(program, flags, expected, no_tensorflow):
    assert expected in the_line(run_script(program, *flags, **no_tensorflow))


# --- Text


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> pathlib.Path:
    """A text of 40 documents, one sentence a line."""
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
    """A SentencePiece model of 60 pieces."""
    process = run_script(
        TRAIN_SPM,
        f"--input_file={corpus}",
        f"--output_prefix={corpus.parent / 'spm'}",
        "--vocab_size=60",
    )
    assert process.returncode == 0, process.stderr
    return corpus.parent / "spm.model"


@pytest.fixture
def program_on(tmp_path, vocabulary):
    """A function that runs a data program on a text; all that it writes is below `out`."""

    def run(program: str, text: bytes | pathlib.Path, *flags, before: Sequence[str] = ()):
        path = text
        if isinstance(text, bytes):
            path = tmp_path / "text.txt"
            path.write_bytes(text)
        out = tmp_path / "out"
        outputs = {
            SPLIT: [f"--output_file={out / 'corpus.txt'}", "--num_workers=1"],
            TRAIN_SPM: [f"--output_prefix={out / 'spm'}", "--vocab_size=60"],
            CREATE: [f"--output_dir={out}", f"--spm_model_file={vocabulary}", "--num_workers=1"],
        }
        if program == CREATE:
            flags = (
                "--max_seq_length=32",
                "--dupe_factor=2",
                "--max_predictions_per_seq=5",
                *flags,
            )
        command = [sys.executable, *program.split(), f"--input_file={path}", *outputs[program]]
        return subprocess.run(
            [*before, *command, *flags], cwd=ROOT, capture_output=True, text=True, timeout=240
        )

    return run


PROGRAMS = pytest.mark.parametrize("program", [SPLIT, TRAIN_SPM, CREATE])


@PROGRAMS
def test_an_empty_corpus(program, program_on, tmp_path):
    line = the_line(program_on(program, b"\n \n\n"))
    assert "no sentence" in line or "holds no text" in line or "no document is left" in line
    assert not list((tmp_path / "out").glob("**/*.*"))


def test_documents_of_one_sentence_are_counted(program_on, tmp_path):
    text = b"This one stands alone here.\n\n" + "\n".join(SENTENCES).encode() + b"\n"
    process = program_on(SPLIT, text, "--document_separator=blank_line", "--line_breaks=paragraphs")
    assert process.returncode == 0
    assert "1 documents below --min_sentences=2 dropped" in process.stderr
    process = program_on(CREATE, text)
    assert process.returncode == 0
    assert "1 documents are a single sentence" in process.stderr


def test_nothing_but_documents_of_one_sentence(program_on):
    line = the_line(program_on(SPLIT, b"This one stands alone here.\n"))
    assert "no document is left" in line and "--min_sentences" in line
    clean = ("--single_segment=clean", "--word_start_rule=marker")
    line = the_line(program_on(CREATE, b"alone\n", *clean))
    assert "no document has two sentences" in line


@PROGRAMS
def test_a_line_of_200_000_characters(program, program_on, corpus):
    text = ("word " * 40_000).encode() + b".\n" + corpus.read_bytes()
    process = program_on(program, text)
    assert process.returncode == 0, process.stderr
    counted = {
        SPLIT: "1 sentences above 4,000 characters cut",
        TRAIN_SPM: "1 above 4,192 bytes left out",
    }
    assert counted.get(program, "") in process.stderr


@PROGRAMS
def test_bytes_that_are_not_utf8(program, program_on, corpus, tmp_path):
    text = (
        corpus.read_bytes()
        + b"The caf\xe9 was open, and we had tea there.\nIt closed at ten, na\xefvely.\n"
    )
    line = the_line(program_on(program, text))
    assert "text.txt" in line and "UTF-8" in line and "--invalid_utf8" in line
    number = len(text.splitlines()) - 1
    assert f"line {number}" in line
    assert not list((tmp_path / "out").glob("**/*.*"))
    process = program_on(program, text, "--invalid_utf8=replace")
    assert process.returncode == 0
    assert "2" in process.stderr and f"line {number}" in process.stderr


def test_a_vocabulary_larger_than_the_corpus(program_on):
    line = the_line(program_on(TRAIN_SPM, "\n".join(SENTENCES).encode(), "--vocab_size=5000"))
    assert "--vocab_size=5000: the corpus is too small for so many tokens; it gives at most" in line


@pytest.mark.parametrize("content", [b"", b"not a model at all", b"\x0a\xff\xff"])
def test_no_sentencepiece_model(content, program_on, corpus, tmp_path, refused):
    path = tmp_path / "wrong.model"
    path.write_bytes(content)
    message = f"{path}: is neither a SentencePiece model nor a WordPiece vocabulary"
    assert message in the_line(program_on(CREATE, corpus, f"--spm_model_file={path}"))
    assert not (tmp_path / "out").exists()
    assert message in refused(f"--spm_model_file={path}")
    assert not (tmp_path / "run").exists()


def test_the_folder_holds_records_made_otherwise(program_on, corpus, tmp_path):
    assert program_on(CREATE, corpus).returncode == 0
    before = snapshot(tmp_path / "out")
    line = the_line(program_on(CREATE, corpus, "--masked_lm_prob=0.1"))
    assert "holds records of another run: masked_lm_prob was 0.15, is 0.1" in line
    assert snapshot(tmp_path / "out") == before


# --- Files of tasks and text, read without a model


def with_answer(text: object, start: object) -> dict:
    """A SQuAD file with one answer."""
    answers = [{"text": text, "answer_start": start}]
    question = {"id": "a", "question": "Who?", "answers": answers}
    return {"data": [{"paragraphs": [{"context": "Anna saw Bert.", "qas": [question]}]}]}


def with_passage(**changes: object) -> dict:
    """A file of RACE, changed."""
    passage = {"article": "Anna saw Bert.", "questions": ["Who _ ?"], "answers": ["A"]}
    return {**passage, "options": [["saw", "b", "c", "d"]], **changes}


DEEP, HALF = "[" * 100_000, r'"\ud800"'
SQUAD_FILE = json.dumps(with_answer("Anna", 0))
TABLE = "review\tlabel\n"
MANY = f"{TABLE}{'good ' * 2_000_000}\tgood\nb\tbad\n"  # 10 MB in a field
# Content of the file (None: a folder in its place), and what the line says; "" if the file is read.
WRONG_TSV = {
    "no text in any row": (f"{TABLE} \tgood\n\tbad\n", "column 'review' has no text in any row"),
    "one label": (f"{TABLE}a\tgood\nb\tgood\n", "expected two labels or more"),
    "no label": (f"{TABLE}a\tgood\nb\t \n", ":3: has no label in column 'label'"),
    "commas": ("review,label\na,good\n", "columns are separated by tabs"),
    "a column twice": ("review\tlabel\tlabel\na\tb\tc\n", "has 2 columns named 'label'"),
    "a row too short": (f"{TABLE}a\n", ":2: expected 2 columns, got 1 column"),
    "UTF-16": (f"{TABLE}a\tgood\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
    "UTF-16 without a mark": (f"{TABLE}a\tgood\n".encode("utf-16-le"), "has no column"),
    "another encoding": (f"{TABLE}caf\xe9\tgood\n".encode("latin-1"), ":2: is not UTF-8"),
    "binary": (bytes(range(256)), "is not UTF-8"),
    "nothing": ("", "holds no rows"),
    "line breaks only": ("\n\n\r\n", "holds no rows"),
    "a folder": (None, "cannot be read (Is a directory)"),
    "CR alone": (f"{TABLE}a\tgood\nb\tbad\n".replace("\n", "\r"), ""),
    "NUL in a text": (f"{TABLE}a\0a\tgood\nb\tbad\n", ""),
    "10 MB in a field": (MANY, ""),
    "separators that are no line ends": (f"{TABLE}a\u2028\x85a\tgood\nb\tbad\n", ""),
}
WRONG_SCORES = {
    word: (f"{TABLE}a\t1\nb\t{word}\n", f":3: expected a number as score, got {word!r}")
    for word in ("nan", "inf", "-Infinity", "1e999", "high", "1,5", "")
}
WRONG_SQUAD = {
    "deep": (DEEP, "nested too deeply"),
    "deep inside": (SQUAD_FILE.replace('"Who?"', f'{{"a": {DEEP}'), "nested too deeply"),
    "half a pair in the context": (SQUAD_FILE.replace("Bert", r"\ud83d"), "half a surrogate pair"),
    "half a pair in an id": (SQUAD_FILE.replace('"a"', HALF), "half a surrogate pair"),
    "UTF-16": (SQUAD_FILE.encode("utf-16"), "it is UTF-16; save it as UTF-8"),
    "another encoding": (SQUAD_FILE.replace("Bert", "Ren\xe9").encode("latin-1"), "not JSON ("),
    "cut": (SQUAD_FILE[:-9], "not JSON ("),
    "nothing": ("", "is empty; expected the JSON of a SQuAD file"),
    "NUL": ("\0" * 100, "not JSON ("),
    "a folder": (None, "cannot be read (Is a directory)"),
    "a list": ("[]", 'expected an object with "data"'),
    "a number": ("7", 'expected an object with "data"'),
    "no questions": ('{"data": []}', "holds no questions"),
    "an answer after the context": (with_answer("Anna", 99), "should begin at character 99"),
    "an answer before the context": (with_answer("Anna", -3), "should begin at character -3"),
    "an answer elsewhere": (with_answer("Bert", 0), "where 'Anna' stands"),
    "a huge place": (with_answer("Anna", 10**30), "should begin at character 1000000"),
    "a place as text": (with_answer("Anna", "0"), '"answer_start" must be a whole number'),
    "a place as truth": (with_answer("Anna", False), '"answer_start" must be a whole number'),
    "a broken place": (with_answer("Anna", 0.0), '"answer_start" must be a whole number'),
    "an empty answer": (with_answer("", 0), "an answer is empty"),
    "an answer of spaces": (with_answer(" ", 4), "an answer is empty"),
    "a number as answer": (with_answer(7, 0), '"text" must be a string, got 7'),
    "empty questions": (SQUAD_FILE.replace("Who?", " "), 'every "question" is empty'),
    "an id twice": (
        SQUAD_FILE.replace(
            '"qas": [',
            '"qas": ['
            + json.dumps(with_answer("Anna", 0)["data"][0]["paragraphs"][0]["qas"][0])
            + ", ",
        ),
        "question 'a' is in article 1, paragraph 1 as well",
    ),
}
WRONG_RACE = {
    "deep": (DEEP, "nested too deeply"),
    "half a pair": (json.dumps(with_passage(article="\ud800")), "half a surrogate pair"),
    "UTF-16": (json.dumps(with_passage()).encode("utf-16"), "it is UTF-16; save it as UTF-8"),
    "nothing": ("", "not JSON ("),
    "a folder": (None, "cannot be read (Is a directory)"),
    "a list": ("[]", "must be a JSON object, got list"),
    "no options": (with_passage(options=[]), "must have as many questions as options"),
    "empty options": (with_passage(options=[[]]), "options[0] must be 4 options, got 0"),
    "a number as option": (with_passage(options=[[1, 2, 3, 4]]), "options[0] must be a list of"),
    "another letter": (
        with_passage(answers=["E"]),
        "answers[0] must be one of A, B, C, D; got 'E'",
    ),
    "a small letter": (
        with_passage(answers=["a"]),
        "answers[0] must be one of A, B, C, D; got 'a'",
    ),
    "a number as answer": (
        with_passage(answers=[0]),
        "answers[0] must be one of A, B, C, D; got 0",
    ),
    "answers as text": (with_passage(answers="A"), "answers must be a list, got str"),
    "a question that is none": (with_passage(questions=[None]), "questions[0] must be a string"),
    "empty questions": (with_passage(questions=[""]), "every question of train is empty"),
    "no questions": (with_passage(questions=[], options=[], answers=[]), "hold no questions"),
    "an empty article": (with_passage(article=" "), "every article of train is empty"),
}
PAGE = "<doc id='1'>\nAnna saw Bert.\n"
WRONG_TEXT = {
    "deep": ('{"text": ' + DEEP, ":1: not usable as JSON (nested too deeply)"),
    "half a pair": (f'{{"text": {HALF}}}', ":1: not usable as JSON (half a surrogate pair"),
    "another field": ('{"body": "Anna."}', ":1: expected an object with a text 'text'"),
    "a number as text": ('{"text": 7}', ":1: expected an object with a text 'text'"),
    "no object": ('{"text": "Anna saw Bert."}\n[1]', ":2: expected an object with a text"),
    "cut JSON": ('{"text": "Anna saw Bert."}\n{"te', ":2: not JSON ("),
    "UTF-16": ("Anna saw Bert.\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
    "CR alone": ("Anna saw Bert.\rBert ran.\r", "its lines end in CR alone"),
    "binary": (bytes(range(256)) * 9, "not UTF-8 at"),
    "a page that is cut": (PAGE, ":1: <doc> without </doc>"),
    "a page in a page": (PAGE * 2, ":3: <doc> inside the page that starts at line 1"),
}


def read_task(task: str, **settings: object):
    """Reads training data as the program of the task does."""
    definition = registry.find(task)
    if "task_name" in definition.settings.names():
        settings["task_name"] = task
    if "version" in definition.settings.names():
        settings["version"] = task.removeprefix("squad")
    return registry.resolve(definition.source)(definition.settings(**settings)).read("train")


def read_text(path: str, **settings: object):
    """Reads documents as split_sentences does."""
    settings = split_sentences.SplitSettings(input_file=path, output_file="x", **settings)
    reader = LineReader(settings.invalid_utf8)
    return list(split_sentences.read_documents(path, reader, settings, collections.Counter()))


READERS = {
    "tsv": (
        "train.tsv",
        WRONG_TSV,
        lambda path: read_task("tsv", train_file=path, text_columns="review"),
    ),
    "scores": (
        "train.tsv",
        WRONG_SCORES,
        lambda path: read_task("tsv", train_file=path, text_columns="review", kind="regression"),
    ),
    "squad": ("train.json", WRONG_SQUAD, lambda path: read_task("squad2.0", train_file=path)),
    "race": (
        "train/high/1.txt",
        WRONG_RACE,
        lambda path: read_task(
            "race", data_dir=path.removesuffix("/train/high/1.txt"), level="high"
        ),
    ),
    "text": ("text", WRONG_TEXT, read_text),
}


@pytest.mark.parametrize(
    ("reader", "case"), [(name, case) for name, (_, table, _) in READERS.items() for case in table]
)
def test_a_file_of_another_form(reader, case, tmp_path):
    name, table, read = READERS[reader]
    content, expected = table[case]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), newline="")
    if not expected:
        assert len(read(str(path))) == 2
        return
    with pytest.raises(UserError) as caught:
        read(str(path))
    line = str(caught.value)
    assert len(line.splitlines()) == 1 and len(line) < 500
    assert expected in line and str(tmp_path) in line


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Anna.\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
        (b"Anna saw Bert.\rBert ran.\r", "its lines end in CR alone"),
    ],
)
def test_text_for_records_of_another_form(content, expected, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    inputs = [{"file": str(path), "bytes": len(content)}]
    with pytest.raises(UserError, match=expected):
        blocks.read_block(next(blocks.blocks_of(inputs)), "error")


@pytest.mark.parametrize("name", ["squad", "race"])
def test_passages_of_another_form(name, tmp_path):
    wrong = {
        "squad": ['{"data": [{"paragraphs": [{"context": 7}]}]}', '{"data": 7}', "[]", DEEP, HALF],
        "race": ['{"article": 7}', "{}", "[]", DEEP, '{"article": "\\ud800"}'],
    }
    path = tmp_path / "1.txt"
    for content in wrong[name]:
        path.write_text(content)
        with pytest.raises(UserError) as caught:
            if name == "squad":
                create_intrinsic_eval.squad_passages(core_files.read_json(str(path)), str(path))
            else:
                list(create_intrinsic_eval.race_passages(str(tmp_path)))
        assert len(str(caught.value).splitlines()) == 1 and str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--text_columns=review,mood"], "--label_column=mood is in --text_columns"),
        (["--id_column=mood"], "--label_column=mood is in --text_columns or --id_column"),
        (["--text_columns=a,a"], "--text_columns must be one or two names, got 'a,a'"),
        (["--text_columns=a,"], "--text_columns must be one or two names, got 'a,'"),
        (["--label_column="], "--label_column is required with --task_name=tsv"),
        (["--seed=2147483647", "--num_runs=2"], "--num_runs (2) and --restart_collapsed lead to"),
        (["--start_warmup_step=9", "--num_warmup_steps=4"], "(4, from --start_warmup_step=9) must"),
        (["--max_eval_steps=-5"], "--max_eval_steps must be 0, got -5"),
        (
            ["--distribution_strategy=multi_worker_mirrored", "--worker_hosts=a:99999"],
            "--worker_hosts must be host:port of every worker, got 'a:99999'",
        ),
    ],
)
def test_flags_that_contradict_each_other(flags, expected, task_flags):
    runner, common = task_flags["tsv"]
    with pytest.raises(UserError) as caught:
        fine_tuning_settings(runner, *common, "--output_dir=x", *flags)
    assert expected in str(caught.value)


def test_more_files_than_examples(tmp_path, tiny_pretrained):
    (tmp_path / "train.json").write_text(SQUAD_FILE)
    flags = [f"--train_file={tmp_path / 'train.json'}", f"--init_checkpoint={tiny_pretrained}"]
    flags += [f"--write_records={tmp_path / 'out'}", "--num_shards=100", "--num_workers=1"]
    with pytest.raises(UserError) as caught:
        fine_tune_here("squad", *flags, "--max_seq_length=64", "--max_query_length=9")
    assert str(caught.value).startswith("--num_shards=100: the data has 1 examples, too few")
    assert not (tmp_path / "out").exists()


# --- Standard output


@pytest.mark.parametrize("flags", [["--help"], []], ids=["help", "output"])
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
    command = (
        f"set -o pipefail; {sys.executable} {tmp_path}/program.py {' '.join(flags)} {redirection}"
    )
    process = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
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


def test_predict_without_standard_input(no_tensorflow):
    command = f"{sys.executable} -m albert_tf.predict docs <&-"
    process = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, **no_tensorflow},
        capture_output=True,
        text=True,
    )
    assert "standard input is closed" in the_line(process)


# --- Records


def test_records_that_hold_pieces_beyond_the_vocabulary(refused, tmp_path):
    path = write_records(tmp_path / "big.tfrecord", random_features(30, vocab_size=120))
    line = refused(f"--input_file={path}")
    assert (
        "--input_file: the records hold token id 1" in line
        and "vocab_size of the model is 101" in line
    )


def with_metadata(path: pathlib.Path, num_examples: int, **values) -> pathlib.Path:
    """Puts metadata beside a record file; returns the folder."""
    with path.open("rb") as file:
        shard = shard_entry(path.name, num_examples, path.stat().st_size, file)
    (path.parent / "metadata.json").write_text(json.dumps({**values, "shards": [shard]}))
    return path.parent


def test_metadata_of_another_vocabulary_size(refused, records_file):
    folder = with_metadata(records_file, 60, vocab_size=30000)
    line = refused(f"--input_file={folder}")
    assert "vocab_size of the model is 101" in line and "vocabulary of 30000 tokens" in line


def test_held_out_records_of_another_vocabulary(refused, records_file, tmp_path):
    with_metadata(records_file, 60, spm_sha256="a")
    path = write_records(tmp_path / "eval" / "a.tfrecord", random_features(6))
    with_metadata(path, 6, spm_sha256="b")
    line = refused(f"--eval_file={path}")
    assert line == "--eval_file was made with another vocabulary than --input_file"


def test_a_vocabulary_that_the_records_were_not_made_with(refused, records_file, vocabulary):
    with_metadata(records_file, 60, spm_sha256="a")
    line = refused(f"--spm_model_file={vocabulary}")
    assert line.endswith("spm.model: the records of --input_file were made with another one")


def test_records_of_another_vocabulary_than_the_checkpoints(
    refused, records_file, vocabulary, tmp_path
):
    with_metadata(records_file, 60, spm_sha256="a")
    model = tmp_path / "model"
    save_pretrained(AlbertForPreTraining(TINY), model, spm_model_file=str(vocabulary))
    line = refused(f"--init_checkpoint={model}")
    assert line == (
        f"--input_file: the records were made with another vocabulary than {model / 'spiece.model'}, that of"
        " --init_checkpoint; make them with it, or give another checkpoint"
    )


def test_a_truncated_record_file(refused, records_file):
    records_file.write_bytes(records_file.read_bytes()[:-5])
    line = refused()
    assert f"{records_file} is not a complete TFRecord file (record 59 at byte" in line


def test_a_record_file_that_is_shorter_than_its_metadata_says(refused, records_file):
    folder = with_metadata(records_file, 60)
    records_file.write_bytes(records_file.read_bytes()[:-5])
    assert "truncated or changed; make it again" in refused(f"--input_file={folder}")


def flip_bit_in_record(path: pathlib.Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    position = 0
    for _ in range(number):
        position += 16 + struct.unpack("<Q", data[position : position + 8])[0]
    data[position + 40] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_that_is_met_while_training(refused, tmp_path, config_file):
    # The first 1000 records are looked at before the run starts; without shuffling, step 11 takes the next 100.
    path = write_records(tmp_path / "many.tfrecord", random_features(1100))
    intact = path.read_bytes()
    flip_bit_in_record(path, 1050)
    flags = [f"--input_file={path}", "--shuffle=false", "--shuffle_buffer_examples=1"]
    flags += ["--train_batch_size=100", "--num_train_steps=12", "--save_checkpoints_steps=10"]
    line = refused(*flags)
    assert line.startswith(f"damaged records: {path} (record 1050: corrupted record at")
    assert (tmp_path / "run" / "checkpoints" / "step-10.index").exists()
    path.write_bytes(intact)
    flags += [f"--albert_config_file={config_file}", f"--output_dir={tmp_path / 'run'}"]
    assert pretrain_here(*SHORT, *flags)["steps_in_this_process"] == 2


def test_a_flipped_bit_that_is_met_while_evaluating(refused, tmp_path):
    path = write_records(tmp_path / "many.tfrecord", random_features(1100))
    flip_bit_in_record(path, 1050)
    line = refused(f"--eval_file={path}", "--max_eval_steps=0")
    assert line.startswith(f"damaged records: {path} (record 1050: corrupted record at")


def test_a_later_file_of_other_records(refused, tmp_path):
    write_records(tmp_path / "two" / "a.tfrecord", random_features(90))
    other = random_features(30)
    other["input_ids"] = other["input_ids"][:, :-1]
    path = write_records(tmp_path / "two" / "b.tfrecord", other)
    line = refused(f"--input_file={tmp_path / 'two'}", "--shuffle=false", "--num_train_steps=20")
    assert line.startswith(f"damaged records: {path} (record 0: ")


@pytest.mark.parametrize("content", [b"", b"just text, and no record", b"\x00" * 100])
def test_no_record_file(content, refused, tmp_path):
    path = tmp_path / "wrong.tfrecord"
    path.write_bytes(content)
    assert refused(f"--input_file={path}").startswith("--input_file")
    assert not (tmp_path / "run").exists()


def test_a_folder_named_like_a_record_file(refused, tmp_path):
    (tmp_path / "data" / "a.tfrecord").mkdir(parents=True)
    assert "a.tfrecord is a folder" in refused(f"--input_file={tmp_path / 'data'}")


def test_a_folder_without_records(refused, tmp_path):
    assert "no record files there (*.tfrecord*)" in refused(f"--input_file={tmp_path}")


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_metadata_that_is_not_ours(content, refused, records_file):
    (records_file.parent / "metadata.json").write_text(content)
    assert "metadata.json" in refused()


def test_records_of_another_schema(refused, tmp_path):
    features = random_features(6)
    del features["masked_lm_ids"]
    path = write_records(tmp_path / "other.tfrecord", features)
    line = refused(f"--input_file={path}")
    assert line.startswith(f"--input_file: {path} has no feature 'masked_lm_ids'")


def test_lengths_that_contradict_the_records(refused, records_file):
    line = refused("--max_seq_length=12")
    assert line.startswith("--max_seq_length=12 contradicts the records in") and "=11" in line
    line = refused("--max_predictions_per_seq=5")
    assert "--max_predictions_per_seq=5" in line
    folder = with_metadata(records_file, 60, max_seq_length=LENGTH)
    line = refused(f"--input_file={folder}", "--max_seq_length=12")
    assert line.startswith("--max_seq_length=12 contradicts the records in") and "=11" in line


def test_records_longer_than_the_model_has_positions(refused, config_file):
    config_file.write_text(TINY.replace(max_position_embeddings=10).to_json_string())
    line = refused()
    assert "max_position_embeddings of the model is 10" in line and "--max_seq_length=11" in line


# --- The model's configuration and the initial checkpoint


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hiden_size": 20}, "unknown key 'hiden_size'"),
        ({"hidden_size": 0}, "hidden_size must be at least 1, got 0"),
        ({"hidden_size": "20"}, "hidden_size must be of type int, got '20'"),
        ({"hidden_size": 21}, "num_attention_heads must divide hidden_size 21, got 4"),
        ({"hidden_act": ["gelu"]}, "hidden_act must be of type str, got ['gelu']"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be at most 0.99, got 1.0"),
    ],
)
def test_an_impossible_configuration(change, expected, refused, config_file):
    config_file.write_text(json.dumps({**json.loads(TINY.to_json_string()), **change}))
    line = refused()
    assert line.startswith(f"{config_file}: ") and expected in line


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "expected a JSON object"),
    ],
)
def test_a_configuration_that_is_not_json(content, expected, refused, config_file):
    config_file.write_bytes(content)
    assert f"{config_file}: {expected}" in refused()


@pytest.fixture
def checkpoint(tmp_path):
    """The tiny model as a folder."""
    save_pretrained(AlbertForPreTraining(TINY, seed=3), tmp_path / "model")
    return without_checksums(tmp_path / "model")


@pytest.mark.parametrize(
    ("field", "theirs", "ours"), [("hidden_size", 20, 24), ("num_attention_heads", 4, 5)]
)
def test_a_configuration_that_contradicts_the_checkpoint(
    field, theirs, ours, refused, config_file, checkpoint
):
    config_file.write_text(TINY.replace(**{field: ours}).to_json_string())
    line = refused(f"--init_checkpoint={checkpoint}")
    assert f"{checkpoint}: its {field} is {theirs}, the model's configuration says {ours}" in line
    assert "--albert_config_file" in line


def test_a_folder_that_is_no_model(refused, tmp_path):
    line = refused(f"--init_checkpoint={tmp_path}")
    assert line.startswith(f"{tmp_path}: expected a folder with model.safetensors")


def test_a_damaged_model_folder(refused, checkpoint):
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert f"{path}: damaged safetensors file" in refused(f"--init_checkpoint={checkpoint}")


def test_a_damaged_tf1_checkpoint(refused, tmp_path):
    save_pretrained(AlbertForPreTraining(TINY, seed=3), tmp_path / "tf1", format="tf1")
    path = without_checksums(tmp_path / "tf1") / "model.ckpt-best.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-100])
    assert "damaged TF1 checkpoint" in refused(f"--init_checkpoint={tmp_path / 'tf1'}")
    path.unlink()
    assert "damaged TF1 checkpoint" in refused(f"--init_checkpoint={tmp_path / 'tf1'}")


def test_a_checkpoint_without_an_encoder_variable(refused, checkpoint, finished_run, tmp_path):
    path = checkpoint / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    del tensors["albert.pooler.weight"]
    safetensors.numpy.save_file(tensors, path)
    before = snapshot(tmp_path / "run")
    line = refused(f"--init_checkpoint={checkpoint}", "--overwrite_output_dir")
    assert "1 of the encoder's variables are not in it, bert/pooler/dense/kernel the first" in line
    assert snapshot(tmp_path / "run") == before, (
        "the run was deleted for a command that cannot work"
    )


# --- The run's folder


def test_a_folder_of_another_run(refused, finished_run, tmp_path):
    before = snapshot(tmp_path / "run")
    line = refused("--learning_rate=0.5")
    assert (
        "holds a run with learning_rate=0.00176, not 0.5" in line and "--overwrite_output" in line
    )
    assert snapshot(tmp_path / "run") == before


@pytest.mark.parametrize("flag", ["--nooverwrite_output_dir", "--overwrite_output_dir"])
def test_a_folder_of_other_files(flag, refused, tmp_path, checkpoint):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    for folder in (tmp_path / "run", checkpoint):  # a model's folder holds a config.json too
        before = snapshot(folder)
        line = refused(f"--output_dir={folder}", flag)
        assert f"--output_dir={folder} contains files that do not belong to a run" in line
        assert snapshot(folder) == before


def test_overwriting_a_run_leaves_other_files(finished_run, tmp_path):
    (tmp_path / "run" / "notes.txt").write_text("mine")
    pretrain_here(
        *finished_run, "--learning_rate=0.5", "--overwrite_output_dir", "--stop_after_steps=1"
    )
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    names = {path.name for path in (tmp_path / "run" / "checkpoints").glob("*.index")}
    assert names == {"step-1.index"}


def test_a_folder_that_cannot_be_written(refused, tmp_path):
    (tmp_path / "file").write_text("no folder")
    line = refused(f"--output_dir={tmp_path / 'file'}")
    assert line == f"--output_dir={tmp_path / 'file'} is a file: choose a new or empty folder"
    line = refused(f"--output_dir={tmp_path / 'file' / 'run'}")
    assert line.startswith(f"--output_dir={tmp_path / 'file' / 'run'} cannot be written")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(refused, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "cannot be written" in refused(f"--output_dir={tmp_path / 'locked' / 'run'}")


@PROGRAMS
def test_an_output_below_a_file(program, program_on, corpus, tmp_path):
    (tmp_path / "out").write_text("no folder")
    line = the_line(program_on(program, corpus))
    assert str(tmp_path / "out") in line and ("cannot be" in line or "is a file" in line)
    assert (tmp_path / "out").read_text() == "no folder"


def test_a_damaged_newest_checkpoint(refused, finished_run, tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    path = folder / "step-4.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-100])
    before = snapshot(folder)
    line = refused("--save_checkpoints_steps=2")
    newest = folder / "step-4"
    assert line.startswith(f"{newest}: damaged checkpoint") and line.endswith(f"delete {newest}.*")
    assert snapshot(folder) == before
    for path in folder.glob("step-4.*"):
        path.unlink()
    results = pretrain_here(*finished_run)
    assert (results["step"], results["steps_in_this_process"]) == (4, 2)


def test_what_the_program_prints_once_tensorflow_is_loaded(finished_run, tmp_path):
    path = tmp_path / "run" / "checkpoints" / "step-4.data-00000-of-00001"
    path.write_bytes(b"x" * path.stat().st_size)
    process = run_script("run_pretraining.py", *finished_run)
    assert the_line(process).startswith(
        f"run_pretraining.py: {tmp_path / 'run'}/checkpoints/step-4: "
    )
    assert process.returncode == 1
    process = run_script("run_pretraining.py", *finished_run, "--max_seq_length=12")
    assert the_line(process).startswith("run_pretraining.py: --max_seq_length=12")
    assert process.returncode == 1


# --- Devices


def test_a_batch_that_the_devices_cannot_share(refused):
    line = refused("--train_batch_size=8", "--gradient_accumulation_steps=3")
    assert (
        line.startswith("--train_batch_size must be a multiple of devices times")
        and "1 x 3" in line
    )
    mirrored = ["--distribution_strategy=mirrored", "--num_devices=2"]
    assert "2 x 1; got 7" in refused("--train_batch_size=7", *mirrored)
    assert refused("--eval_batch_size=7", *mirrored).startswith(
        "--eval_batch_size must be a multiple"
    )


def test_more_devices_than_there_are(refused, monkeypatch):
    mirrored = ["--distribution_strategy=mirrored", "--num_devices=5"]
    assert "--num_devices=5: this process already has 2 CPU devices" in refused(*mirrored)
    real = tf.config.list_physical_devices
    gpus = {"GPU": ["gpu 0", "gpu 1"]}
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind=None: gpus.get(kind) or real(kind)
    )
    assert refused(*mirrored) == "--num_devices is 5, but the machine has 2 GPUs"


def test_a_tpu_that_cannot_be_reached(refused, monkeypatch):
    def fail(**_):
        raise OSError("Name or service not known")

    monkeypatch.setattr(distribute_utils, "get_distribution_strategy", fail)
    line = refused("--tpu_name=nowhere")
    assert line == "--tpu_name 'nowhere' cannot be reached (Name or service not known)"


def test_a_machine_without_a_tpu(refused):
    line = refused("--distribution_strategy=tpu", "--tpu_name=local")
    assert line == "--tpu_name is local, but this machine has no TPU"


# --- A full disk


def limited(num_bytes: int) -> list[str]:
    """A command that runs another, whose files cannot grow beyond a size: as on a full disk, wherever tests run.

    A process with TensorFlow's threads must not set the limit between fork and exec.
    """
    code = (
        "import os, resource, signal, sys;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({num_bytes}, {num_bytes}));"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-c", code]


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 1 MB of its own; skips where nothing can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder],
            capture_output=True,
            text=True,
        )
    except OSError:
        pytest.skip("no program to mount with")
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def leave_room(folder: pathlib.Path, num_bytes: int) -> pathlib.Path:
    """Fills a disk up to so many bytes; returns the file that does."""
    disk = os.statvfs(folder)
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * (disk.f_bavail * disk.f_bsize - num_bytes))
    return ballast


@PROGRAMS
def test_a_data_program_and_a_file_that_cannot_grow(program, program_on, corpus, tmp_path):
    process = program_on(program, corpus)  # also compiles what is compiled once
    assert process.returncode == 0, process.stderr
    before = snapshot(tmp_path / "out")
    if program == CREATE:  # would say that all is there already
        shutil.rmtree(tmp_path / "out")
    line = the_line(program_on(program, corpus, before=limited(6000)))
    assert str(tmp_path / "out") in line and "cannot be written (File too large)" in line
    if program == CREATE:  # it goes on from the text that it has read
        assert {path.name for path in (tmp_path / "out").iterdir()} == {".unfinished"}
    else:
        assert snapshot(tmp_path / "out") == before
    assert program_on(program, corpus).returncode == 0
    assert snapshot(tmp_path / "out") == before


@PROGRAMS
def test_a_data_program_and_a_full_disk(program, program_on, corpus, small_disk, tmp_path):
    (tmp_path / "out").symlink_to(small_disk, target_is_directory=True)
    ballast = leave_room(small_disk, 0)
    line = the_line(program_on(program, corpus))
    assert str(tmp_path / "out") in line and "No space left on device" in line
    ballast.unlink()
    process = program_on(program, corpus)
    assert process.returncode == 0, process.stderr


def check_resumes(flags, folder: pathlib.Path) -> None:
    """Checks that a run of which a step beyond the second failed is whole up to there, and goes on."""
    assert not list(folder.rglob("*.writing*")) and not list(
        (folder / "checkpoints").glob("step-4*")
    )
    assert (folder / "checkpoints" / "step-2.index").exists()
    results = pretrain_here(*flags)
    assert (results["step"], results["steps_in_this_process"]) == (4, 2)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]


def test_a_run_and_a_checkpoint_that_cannot_grow(run_flags, run_folder, tmp_path):
    flags = run_flags(tmp_path / "run")
    shutil.copytree(run_folder("--stop_after_steps=2"), tmp_path / "run")
    before = snapshot(tmp_path / "run" / "checkpoints")
    command = [*limited(30_000), sys.executable, "run_pretraining.py", *flags]
    line = the_line(subprocess.run(command, cwd=ROOT, capture_output=True, text=True))
    assert line.startswith("run_pretraining.py: --output_dir: cannot write a checkpoint to")
    assert "File too large" in line and line.endswith("make room and run the same command again")
    assert snapshot(tmp_path / "run" / "checkpoints") == before
    check_resumes(flags, tmp_path / "run")


@pytest.mark.parametrize("room", [0, 12_288])
def test_a_run_and_a_full_disk(room, run_flags, run_folder, small_disk):
    flags = run_flags(small_disk / "run")
    shutil.copytree(run_folder("--stop_after_steps=2"), small_disk / "run")
    before = snapshot(small_disk / "run" / "checkpoints")
    ballast = leave_room(small_disk, room)
    with pytest.raises(UserError, match="No space left on device") as caught:
        pretrain_here(*flags)
    line = str(caught.value)
    assert line.startswith("--output_dir") and "\n" not in line and "make room" in line
    assert snapshot(small_disk / "run" / "checkpoints") == before
    ballast.unlink()
    check_resumes(flags, small_disk / "run")
