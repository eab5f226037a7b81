"""Every program survives a kill, and a failing disk, at each of its changes to files: given the same command again, it
leaves the same files as a run without a fault.

`make test` tries a sample of the changes; ALBERT_TEST_FAULTS=all tries all (`make test-faults`).
"""

import json
import os
import pathlib
import re
import shutil

import pytest

from tests.data_prep.test_create_pretraining_data import made_up_text
from tests.faults.harness import DISK_ERRORS, Fault, run_program
from tests.helpers import TINY, random_features, train_spm, write_records

TRIES_ALL = os.environ.get("ALBERT_TEST_FAULTS") == "all"
SAMPLE = 3  # changes tried of each program otherwise
# What two runs of the same command may differ in.
VARIABLE = re.compile(
    r"(examples_)?(per_)?seconds?\b|created|date|steps_in_this_process|run_id|checksum"
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, tiny_pretrained, task_files) -> dict[str, pathlib.Path | str]:
    """What the programs read; none of them changes it."""
    folder = tmp_path_factory.mktemp("inputs")
    text = made_up_text(40, seed=2)
    (folder / "text.txt").write_text(text)
    documents = [json.dumps({"text": document}) for document in text.split("\n\n")]
    (folder / "documents.jsonl").write_text("\n".join(documents))
    (folder / "albert_config.json").write_text(TINY.to_json_string())
    write_records(folder / "records" / "examples.tfrecord", random_features(60))
    spm = train_spm(folder / "spiece.model", text.lower().splitlines(), vocab_size=60)
    return {"folder": folder, "spm": spm, "pretrained": tiny_pretrained, "tasks": task_files}


def sentences(inputs, output):
    yield "-m", "data_prep.split_sentences"
    yield (f"--input_file={inputs['folder'] / 'documents.jsonl'}",)
    yield f"--output_file={output / 'train.txt'}", f"--eval_output_file={output / 'held_out.txt'}"
    yield ("--eval_fraction=0.2",)


def vocabulary(inputs, output):
    yield "-m", "data_prep.train_sentencepiece", f"--input_file={inputs['folder'] / 'text.txt'}"
    yield f"--output_prefix={output / 'spiece'}", "--vocab_size=60"


def records(inputs, output):
    yield "-m", "data_prep.create_pretraining_data", f"--spm_model_file={inputs['spm']}"
    yield f"--input_file={inputs['folder'] / 'text.txt'}", f"--output_dir={output / 'records'}"
    yield "--max_seq_length=32", "--dupe_factor=2", "--num_shards=2", "--num_workers=1"


def features(inputs, output):
    yield "-m", "data_prep.create_finetuning_data", "--task_name=MRPC", "--num_workers=1"
    yield f"--data_dir={inputs['tasks'] / 'glue'}", f"--output_dir={output / 'features'}"
    yield f"--spm_model_file={inputs['pretrained'] / 'spiece.model'}", "--max_seq_length=32"


def conversion(inputs, output):
    yield "-m", "albert_tf.convert", inputs["pretrained"], f"--output_dir={output / 'model'}"


def conversion_to_tf1(inputs, output):
    yield from conversion(inputs, output)
    yield ("--format=tf1",)


def pretraining(inputs, output):
    folder = inputs["folder"]
    yield "run_pretraining.py", f"--input_file={folder / 'records'}"
    yield f"--eval_file={folder / 'records'}", f"--output_dir={output / 'run'}"
    yield f"--albert_config_file={folder / 'albert_config.json'}", "--train_batch_size=6"
    yield "--num_train_steps=4", "--num_warmup_steps=1", "--save_checkpoints_steps=2"
    yield "--eval_every_steps=2", "--log_every_steps=1", "--deterministic", "--max_eval_steps=1"


PROGRAMS = {
    program.__name__: program
    for program in (
        sentences,
        vocabulary,
        records,
        features,
        conversion,
        conversion_to_tf1,
        pretraining,
    )
}


def command(name, inputs, output) -> list[object]:
    """The command line of a program."""
    return [argument for line in PROGRAMS[name](inputs, output) for argument in line]


def contents(folder: pathlib.Path) -> dict[str, object]:
    """The files in a folder by their paths; without times, and what TensorFlow dates."""
    values = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or "tfevents" in name or "/checkpoints/" in name:
            continue
        content = path.read_bytes().replace(str(folder).encode(), b"")
        if path.suffix in (".json", ".jsonl", ".md"):
            lines = [line for line in content.decode().splitlines() if path.suffix != ".md"]
            content = [without_times(line) for line in lines]
        values[name] = content
    return values


def without_times(line: str) -> str:
    return re.sub(rf'"[\w ]*({VARIABLE.pattern})[\w ]*": [^,}}]*', "", line)


@pytest.fixture(scope="module", params=PROGRAMS)
def reference(request, inputs, tmp_path_factory):
    """A program, the number of its changes to files, and the files that it leaves."""
    output = tmp_path_factory.mktemp("reference") / "output"
    output.mkdir()
    outcome = run_program(command(request.param, inputs, output), output)
    assert outcome.status == 0, outcome.output
    assert outcome.changes >= 3
    return request.param, outcome.changes, contents(output)


def tried(changes: int) -> list[int]:
    """The numbers of the changes at which a fault happens."""
    if TRIES_ALL:
        return list(range(changes))
    return sorted({changes * number // SAMPLE for number in range(SAMPLE)} | {changes - 1})


def assert_finished(name, inputs, output, expected, at) -> None:
    """Gives the same command again, which must leave the expected files; deletes them."""
    again = run_program(command(name, inputs, output), output)
    # Programs that do not replace a finished model or record folder say so.
    assert (
        again.status == 0
        or "holds a model already" in again.output
        or ("holds records" in again.output)
    ), (at, again.output)
    assert contents(output) == expected, at
    shutil.rmtree(output)


def test_killed_programs_are_finished_by_the_same_command(reference, inputs, tmp_path):
    name, changes, expected = reference
    for at in tried(changes):
        output = tmp_path / f"killed-{at}"
        output.mkdir()
        assert run_program(command(name, inputs, output), output, Fault(at)).status == -9
        assert_finished(name, inputs, output, expected, at)


@pytest.mark.parametrize("error", DISK_ERRORS, ids=os.strerror)
def test_a_failing_disk_is_one_line_and_nothing_is_lost(reference, inputs, tmp_path, error):
    name, changes, expected = reference
    for at in tried(changes):
        output = tmp_path / f"failed-{at}"
        output.mkdir()
        outcome = run_program(command(name, inputs, output), output, Fault(at, error))
        # A file that cannot be removed is no reason to fail.
        assert outcome.status in (0, 1), (at, outcome.output)
        assert "Traceback" not in outcome.output, (at, outcome.output)
        assert_finished(name, inputs, output, expected, at)
