"""Every program survives a kill, and a failing disk, at each of its changes to files: given the same command again, it
leaves the same files as a run without a fault.

`make test` tries a sample of the changes of some programs; ALBERT_TEST_FAULTS=all tries all (`make test-faults`), and
a number so many.
"""

import dataclasses
import errno
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
import safetensors.numpy

from tests.faults import system_calls
from tests.faults.harness import (
    ALL_CHANGES,
    NEED_SPACE,
    RANDOM_NAMES,
    Fault,
    Outcome,
    Process,
    States,
    contents,
    processor_seconds,
    run_program,
    state_of,
    visible,
)
from tests.faults.power import Disk, write_tree
from tests.faults.system_calls import Change
from tests.helpers import (
    MICRO,
    MINE,
    ROOT,
    TINY,
    TRIES_ALL,
    made_up_text,
    random_features,
    train_spm,
    write_records,
)

# What programs say that do not replace finished models, records or exports.
FINISHED = r"(holds|contains) (a model already|records)|is there already"
# Number of faults of each kind that are tried of each program.
SAMPLE = os.environ.get("ALBERT_TEST_FAULTS", "1")
# Names of faults -> the error, and the operations that fail afterwards, too.
FAILING_DISKS = {
    "ENOSPC": (errno.ENOSPC, NEED_SPACE),
    "EIO": (errno.EIO, frozenset()),
    "EIO for good": (errno.EIO, ALL_CHANGES),
    "EROFS": (errno.EROFS, ALL_CHANGES),
}
NUM_LASTING = 6  # changes of each program from which on all fail
NUM_SIGNALS = 12
NUM_POWER_FAILURES = {False: 60, True: 25}  # of each program, by whether it is slow
pytestmark = pytest.mark.skipif(
    not system_calls.is_supported(), reason="needs Linux 5.5 or later with seccomp"
)


@pytest.fixture(scope="session")
def inputs(tmp_path_factory, tiny_pretrained, task_files, task_flags, data_dir) -> dict:
    """What the programs read; none of them changes it."""
    folder = tmp_path_factory.mktemp("inputs")
    text = made_up_text(40, seed=2)
    (folder / "text.txt").write_text(text)
    documents = [json.dumps({"text": document}) for document in text.split("\n\n")]
    (folder / "documents.jsonl").write_text("\n".join(documents))
    config = TINY.replace(num_hidden_layers=1)
    (folder / "albert_config.json").write_text(config.to_json_string())
    write_records(folder / "records" / "examples.tfrecord", random_features(60))
    train_spm(folder / "spiece.model", text.lower().splitlines(), vocab_size=60)
    (folder / "micro.toml").write_text(MICRO)
    (folder / "mine.toml").write_text(MINE)
    served_model(folder / "served")
    in_several_files(folder / "served", folder / "shards")
    found = {"folder": folder, "pretrained": tiny_pretrained, "data": data_dir}
    return {**found, "tasks": task_files, "flags": task_flags}


def served_model(folder: pathlib.Path) -> None:
    """A classifier that can be exported: its vocabulary has every token that the graph needs."""
    from albert_tf import save_pretrained
    from albert_tf.model.heads import AlbertForSequenceClassification
    from albert_tf.text.tokenizer import Tokenizer

    folder.mkdir()
    sentences = ["the cat sat on a mat, late.", "a dog ran to (1999), it was cold - why?"] * 9
    spm = train_spm(folder / "s.model", sentences, vocab_size=60, hard_vocab_limit=False)
    size = Tokenizer.from_file(spm).vocab_size
    config = TINY.replace(vocab_size=size, num_hidden_layers=1).with_labels(("yes", "no"), "MRPC")
    save_pretrained(AlbertForSequenceClassification(config, seed=5), folder, spm_model_file=spm)


def in_several_files(model: pathlib.Path, folder: pathlib.Path) -> None:
    """The same model with its weights in two files and an index, as transformers writes large models."""
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("SHA256SUMS"))
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    file_of = {name: f"model-{1 + at % 2}-of-2.safetensors" for at, name in enumerate(tensors)}
    for file in set(file_of.values()):
        part = {name: tensors[name] for name in tensors if file_of[name] == file}
        safetensors.numpy.save_file(part, folder / file)
    index = json.dumps({"weight_map": file_of})
    (folder / "model.safetensors.index.json").write_text(index)


# --- The programs ---


@dataclasses.dataclass(frozen=True)
class Program:
    """A program and how it is tried; `ignored`, `own` and `notes` are patterns."""

    command: Callable  # (inputs, folder for all output) -> its command line
    prepare: Callable = lambda inputs, output: None  # makes what is in the folder before
    eagerly: bool = False  # see `Process`; most of the runs share a process
    is_slow: bool = (
        False  # whether disk errors are tried at one change of each kind, not at all changes
    )
    ignored: str = ""  # paths of files that another one of the programs writes
    own: str = ""  # paths of files that no other one writes; disk errors are tried there
    trains_as_others: bool = False  # kills are tried there, too: others interrupt the training
    notes: str = "$."  # lines on standard error that are no errors; none


PROGRAMS: dict[str, Program] = {}


def program(**options):
    """Adds a generator of parts of a command line to `PROGRAMS`."""

    def add(function):
        PROGRAMS[function.__name__.replace("_", " ")] = Program(
            lambda *arguments: [one for part in function(*arguments) for one in part], **options
        )
        return function

    return add


@program()
def sentences(inputs, output):
    yield "-m", "data_prep.split_sentences"
    yield (f"--input_file={inputs['folder'] / 'documents.jsonl'}",)
    yield f"--output_file={output / 'train.txt'}", f"--eval_output_file={output / 'held_out.txt'}"
    yield ("--eval_fraction=0.2",)


@program()
def sample_corpus(inputs, output):
    yield "-m", "data_prep.sample_corpus", f"--output_file={output / 'corpus.txt'}"
    yield (f"--input_file={ROOT / 'albert_tf' / 'core'}",)


@program()
def vocabulary(inputs, output):
    yield "-m", "data_prep.train_sentencepiece", f"--input_file={inputs['folder'] / 'text.txt'}"
    yield f"--output_prefix={output / 'spiece'}", "--vocab_size=60"


@program(eagerly=True)
def records(inputs, output):
    folder = inputs["folder"]
    yield "-m", "data_prep.create_pretraining_data", f"--spm_model_file={folder / 'spiece.model'}"
    yield f"--input_file={folder / 'text.txt'}", f"--output_dir={output / 'records'}"
    yield "--max_seq_length=32", "--dupe_factor=2", "--num_shards=2", "--num_workers=1"


@program(eagerly=True, is_slow=True)
def records_with_Beam(inputs, output):
    yield from records(inputs, output)
    yield ("--runner=direct",)


@program(eagerly=True, is_slow=True)
def development_set(inputs, output):
    folder = inputs["folder"]
    yield "-m", "lab.experiments", "development_set", f"--spm_model_file={folder / 'spiece.model'}"
    yield f"--input_file={folder / 'text.txt'}", f"--output_dir={output / 'intrinsic'}"
    yield ("--max_seq_length=32",)


@program(eagerly=True)
def conversion(inputs, output):
    yield "-m", "albert_tf.convert", inputs["pretrained"], f"--output_dir={output / 'model'}"


@program(eagerly=True)
def conversion_of_several_files(inputs, output):
    yield "-m", "albert_tf.convert", inputs["folder"] / "shards", f"--output_dir={output / 'model'}"


@program(eagerly=True)
def conversion_to_TF1(inputs, output):
    yield from conversion(inputs, output)
    yield ("--format=tf1",)


def an_old_version(inputs, output):
    (output / "served" / "1").mkdir(parents=True)
    (output / "served" / "1" / "saved_model.pb").write_text("an old version")


@program(is_slow=True, prepare=an_old_version)
def export(inputs, output):
    yield "-m", "albert_tf.export", inputs["folder"] / "served", f"--output_dir={output / 'served'}"
    yield ("--overwrite",)


@program(is_slow=True)
def export_to_TFLite(inputs, output):
    yield "-m", "albert_tf.export", inputs["pretrained"], f"--output_dir={output / 'lite'}"
    yield ("--format=tflite",)


@program(is_slow=True)
def export_to_ONNX(inputs, output):
    yield "-m", "albert_tf.export", inputs["pretrained"], f"--output_dir={output / 'onnx'}"
    yield ("--format=onnx",)


@program(eagerly=True, is_slow=True)
def pretraining(inputs, output):
    folder = inputs["folder"]
    yield "run_pretraining.py", f"--input_file={folder / 'records'}"
    yield f"--eval_file={folder / 'records'}", f"--output_dir={output / 'run'}"
    yield f"--albert_config_file={folder / 'albert_config.json'}", "--train_batch_size=6"
    yield "--num_train_steps=3", "--num_warmup_steps=1", "--stop_after_steps=2"
    yield "--save_checkpoints_steps=1", "--eval_every_steps=1", "--log_every_steps=1"
    yield "--keep_checkpoint_max=1", "--max_eval_steps=1", "--deterministic"


def fine_tuning_flags(inputs, task, output):
    runner, flags = inputs["flags"][task]
    yield (f"run_{runner}.py", *flags, f"--output_dir={output / 'run'}", "--deterministic")
    # These replace what `flags` says. The rate of the last step would be 0.
    yield "--num_train_steps=2", "--stop_after_steps=1", "--eval_every_steps=1"
    yield "--save_checkpoints_steps=1", "--eval_batch_size=30", "--do_predict"


@program(eagerly=True, is_slow=True, own="/(predictions|model)/|/run/[^/]*$")
def fine_tuning_twice(inputs, output):
    yield from fine_tuning_flags(inputs, "mrpc", output)
    yield ("--num_runs=2",)


@program(eagerly=True, is_slow=True, own="/predictions/", trains_as_others=True)
def SQuAD(inputs, output):
    yield from fine_tuning_flags(inputs, "squad2.0", output)


@program(eagerly=True, is_slow=True, own="/predictions/", trains_as_others=True)
def RACE(inputs, output):
    yield from fine_tuning_flags(inputs, "race", output)


@program(
    eagerly=True,
    is_slow=True,
    ignored="/(records|vocabulary|intrinsic|pretraining)/",
    own=r"/results|/runs/|sources\.json",
    notes=r"\w+: ",
)
def experiments(inputs, output):
    folder = inputs["folder"]
    yield "-m", "lab.experiments", "run", folder / "mine.toml", f"--scale={folder / 'micro.toml'}"
    yield f"--work_dir={output / 'work'}", f"--results_dir={output / 'results'}"
    yield "--rows=one layer", "--seeds=1", f"--data_dir={inputs['data']}"
    yield ("--measures=parameters,layer_changes",)


# --- Faults ---


@dataclasses.dataclass
class Tried:
    """A program, the result of a run without faults, and what was found out about runs with faults."""

    name: str
    program: Program
    inputs: dict
    output: pathlib.Path
    states: States  # that kills leave
    disk: Disk  # and that power failures leave
    process: Process | None = None  # runs the program again and again
    outcome: Outcome | None = None  # of the run without faults
    expected: dict[str, bytes] = dataclasses.field(default_factory=dict)  # files of every run
    # States from which the same command was seen to finish the work.
    restarted: set[str] = dataclasses.field(default_factory=set)
    failures: list[str] = dataclasses.field(default_factory=list)

    def run(self, *others, in_new_process: bool = False, **options) -> Outcome:
        command, eagerly = self.program.command(self.inputs, self.output), self.program.eagerly
        options["ignored"] = self.program.ignored
        if in_new_process or not eagerly:
            return run_program(command, self.output, *others, eagerly=eagerly, **options)
        if self.process is None or self.process.has_ended:
            self.end()
            self.process = Process(eagerly=eagerly)
        return self.process.run(command, self.output, *others, **options)

    def end(self) -> None:
        if self.process:
            self.process.end()

    def reset(self) -> None:
        shutil.rmtree(self.output, ignore_errors=True)
        self.output.mkdir()
        self.program.prepare(self.inputs, self.output)

    def write(self, tree: Mapping[str, bytes | None]) -> None:
        shutil.rmtree(self.output)
        self.output.mkdir()
        write_tree(tree, self.output)

    def fail(self, what: str, *fault: Fault, **options) -> None:
        """Runs the program with a fault, which must be reported in one line; then the same command without it."""
        self.reset()
        outcome = self.run(*fault, **options)
        what += f" failed, status {outcome.status}, {outcome.errors[-5:]}"
        # A file that cannot be removed is no reason to fail.
        lines = [line for line in outcome.errors if not re.match(self.program.notes, line)]
        if outcome.status not in (0, 1) or outcome.status == 1 and len(lines) != 1:
            self.failures.append(what)
        if outcome.status == 0:
            self.compare(what, results_only=True)
        self.finish(what)

    def finish(self, what: object, *, leftovers: str = "", **options) -> None:
        """Gives the command again, which must leave the expected files; each thirtieth time in a new process."""
        state = state_of(self.output)
        if state in self.restarted and not options:
            return
        self.restarted.add(state)
        again = self.run(in_new_process=len(self.restarted) % 30 == 0, **options)
        is_rejected = any(re.search(FINISHED, line) for line in again.errors)
        if again.status and not is_rejected:
            self.failures.append(f"{what}: then status {again.status}, {again.errors[-5:]}")
        else:
            self.compare(what, leftovers=leftovers)

    def compare(self, what: object, *, results_only: bool = False, leftovers: str = "") -> None:
        """Compares the files in the folder with the expected ones by name and content.

        With `results_only`, there may be other files, and no cache: a program works without one. `leftovers` is a
        pattern of paths where there may be other files.
        """
        found = contents(self.output)
        results = {name for name in self.expected if not name.startswith("cache/")}
        others = {name for name in found if not leftovers or not re.search(leftovers, f"/{name}")}
        names = results if results_only else {*self.expected, *others}
        for name in sorted(names):
            if (content := found.get(name)) != (expected := self.expected.get(name)):
                contents_of = f"{(content or b'')[:500]!r} instead of {(expected or b'')[:500]!r}"
                self.failures.append(f"{what}: then {name} is {contents_of}")

    def check(self) -> None:
        failures, self.failures = self.failures, []
        assert not failures, "\n".join([f"{len(failures)} failures", *failures])


# Programs of each way to write files; the others are rare in a sample.
OFTEN = {"sentences", "records", "conversion", "pretraining"}


PARAMETERS = [
    pytest.param(name, marks=[pytest.mark.rare] * (name not in OFTEN)) for name in PROGRAMS
]


@pytest.fixture(scope="module", params=PARAMETERS[::-1])  # those that take longest come first
def tried(request, inputs, tmp_path_factory) -> Iterator[Tried]:
    name = request.param
    if name == "records with Beam" and not importlib.util.find_spec("apache_beam"):
        pytest.skip("Apache Beam is not installed")
    if name == "experiments" and SAMPLE == "1":
        pytest.skip("takes minutes; ALBERT_TEST_FAULTS=all")
    folder = tmp_path_factory.mktemp("program")
    output = folder / "output"
    (folder / "states").mkdir()
    output.mkdir()
    program = PROGRAMS[name]
    program.prepare(inputs, output)
    states = States(output, folder / "states", program.own if program.trains_as_others else "")
    tried = Tried(name, program, inputs, output, states, Disk(output, program.ignored))
    tried.outcome = tried.run(before_change=states.before_change, watch=tried.disk.before_change)
    assert tried.outcome.status == 0, tried.outcome
    assert len(tried.outcome.changes) >= 3
    tried.expected = contents(output)
    yield tried
    tried.end()


def sample(values: list, tried: Tried, most: int = sys.maxsize) -> list:
    """At most so many of the values; all in `make test-faults`, if no number is given."""
    size = min(len(values), most if TRIES_ALL else int(SAMPLE))
    return [values[at] for at in sorted(random.Random(tried.name).sample(range(len(values)), size))]


def skip_slow(tried: Tried) -> None:
    if tried.program.is_slow and not TRIES_ALL:
        pytest.skip("the other programs write files in the same way; ALBERT_TEST_FAULTS=all")


def one_of_each_kind(changes: Mapping[int, Change], name: str, *, of_operations: bool) -> list[int]:
    """The number of one of the changes of each file, or one of each operation on it.

    Files whose names differ in random parts and numbers only count as one.
    """
    shuffled = list(changes)
    random.Random(name).shuffle(shuffled)
    kinds = {}
    for at in shuffled:
        path = re.sub(r"\d\w*", "", RANDOM_NAMES.sub("", changes[at].path))
        kinds[changes[at].operation if of_operations else "", path] = at
    return sorted(kinds.values())


def test_a_kill_leaves_the_state_that_was_copied_before_the_change(inputs, tmp_path):
    output = tmp_path / "output"
    (tmp_path / "states").mkdir()
    command = PROGRAMS["feature records"].command(inputs, output)
    states = States(output, tmp_path / "states")
    before_changes = []

    def before_change(change):
        states.before_change(change)
        before_changes.append(state_of(output))

    output.mkdir()
    assert run_program(command, output, before_change=before_change).status == 0
    assert len(states.found) >= 5
    for at in random.Random(3).sample(range(len(before_changes)), 4):
        shutil.rmtree(output)
        output.mkdir()
        assert run_program(command, output, Fault(at)).status == -signal.SIGKILL
        assert state_of(output) == before_changes[at] and before_changes[at] in states.found


@pytest.mark.parametrize("is_synchronized", [False, True])
def test_a_power_failure_keeps_only_what_was_synchronized(is_synchronized, tmp_path):
    disk = Disk(tmp_path, "")

    def change(operation, name, old_name=""):
        old_path = str(tmp_path / old_name) if old_name else ""
        disk.before_change(Change(operation, str(tmp_path / name), 0, (), operation, old_path))

    change("open", "new")
    (tmp_path / "new").write_bytes(b"1234")
    change("write", "new")
    if is_synchronized:
        change("sync", "new")
    change("rename", "a", "new")
    (tmp_path / "new").rename(tmp_path / "a")
    assert disk.left() == {}
    change("sync", ".")
    partial = set() if is_synchronized else {b"", b"12", b"\0\0\0\0"}
    assert {tree.get("a") for _, tree in disk.states.values()} == {None, b"1234"} | partial
    assert disk.left() == {"a": b"1234" if is_synchronized else b""}


def test_killed_programs_are_finished_by_the_same_command(tried, record_property):
    started = processor_seconds()
    copies = sample(sorted(tried.states.found.values()), tried)
    for copy in copies:
        shutil.rmtree(tried.output)
        shutil.copytree(copy, tried.output, symlinks=True)
        tried.finish(f"killed, see {copy}")
    tried.check()
    figures = {
        "program": tried.name,
        "changes": len(tried.outcome.changes),
        "kills": tried.states.kills if len(copies) == len(tried.states.found) else len(copies),
        "restarts": len(copies),
        "seconds": processor_seconds() - started,
    }
    record_property("faults", figures)


def test_a_power_failure_loses_nothing_that_a_program_has_finished(tried, record_property):
    started, restarts = processor_seconds(), len(tried.restarted)
    assert visible(tried.disk.seen()) == tried.expected  # the changes were followed
    tried.write(tried.disk.left())
    tried.compare("the power fails after the end", results_only=True)
    states = sample(
        sorted(tried.disk.states.values(), key=lambda state: state[0]),
        tried,
        NUM_POWER_FAILURES[tried.program.is_slow],
    )
    for what, tree in states:
        tried.write(tree)
        # The removal of the work files of programs that it starts may be lost; they are tried on their own.
        tried.finish(f"the power fails {what}", leftovers=tried.program.ignored)
    tried.check()
    figures = {
        "program": tried.name,
        "power": len(states),
        "restarts": len(tried.restarted) - restarts,
        "seconds": processor_seconds() - started,
    }
    record_property("faults", figures)


@pytest.mark.parametrize("kind", FAILING_DISKS)
def test_a_failing_disk_is_one_line_and_nothing_is_lost(tried, kind, record_property):
    started, restarts = processor_seconds(), len(tried.restarted)
    error, lasts_for = FAILING_DISKS[kind]
    is_rare = lasts_for == ALL_CHANGES
    if is_rare and not TRIES_ALL:
        pytest.skip("a disk that fails once is similar; ALBERT_TEST_FAULTS=all")
    changes = {
        number: change
        for number, change in enumerate(tried.outcome.changes)
        if (not lasts_for or change.operation in lasts_for)
        and re.search(tried.program.own, change.path)
    }
    all_of_them = list(changes)
    if tried.program.is_slow:
        all_of_them = one_of_each_kind(changes, tried.name, of_operations=not lasts_for)
    numbers = sample(all_of_them, tried, NUM_LASTING if is_rare else sys.maxsize)
    for number in numbers:
        change = tried.outcome.changes[number]
        tried.fail(f"{kind}, {change.name} {change.path}", Fault(number, error, lasts_for))
    tried.check()
    figures = {
        "program": tried.name,
        "lasting" if is_rare else kind: len(numbers),
        "restarts": len(tried.restarted) - restarts,
        "seconds": processor_seconds() - started,
    }
    record_property("faults", figures)


def test_a_limit_of_the_size_of_files_is_one_line_and_nothing_is_lost(tried):
    skip_slow(tried)
    most_bytes = max(map(len, tried.expected.values())) // 2
    tried.fail(f"files of {most_bytes} bytes", most_bytes=most_bytes)
    tried.check()


def test_a_clock_that_goes_back_changes_nothing(tried):
    skip_slow(tried)
    (copy,) = random.Random(tried.name).sample(sorted(tried.states.found.values()), 1)
    shutil.rmtree(tried.output)
    shutil.copytree(copy, tried.output, symlinks=True)
    for path in tried.output.rglob("*"):
        os.utime(path, (time.time() + 1e6,) * 2)  # as if the clock had gone back since the kill
    tried.finish(f"killed, see {copy}, and the clock went back", seconds_back=3600)
    tried.check()


@pytest.mark.skipif(not TRIES_ALL, reason="takes a minute; ALBERT_TEST_FAULTS=all")
@pytest.mark.parametrize("tried", ["fine tuning twice"], indirect=True)
def test_a_signal_to_several_runs_is_one_line_and_the_same_command_continues(tried):
    numbers = random.Random(5).sample(range(len(tried.outcome.changes)), NUM_SIGNALS)
    for number in numbers:
        tried.reset()
        outcome = tried.run(Fault(number, signal=signal.SIGTERM))
        what = f"SIGTERM at change {number}: status {outcome.status}, {outcome.errors[-5:]}"
        num_lines = {0: 0, 128 + signal.SIGTERM: 1}
        if len(outcome.errors) != num_lines.get(outcome.status):
            tried.failures.append(what)
        tried.finish(what)
    tried.check()
