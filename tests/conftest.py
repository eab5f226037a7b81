"""Fixtures: records of random ids, a tiny pretrained model, small data of every task, an experiment of seconds."""

import contextlib
import ctypes
import functools
import gc
import io
import json
import os
import pathlib
import sys
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model.config import AlbertConfig
from albert_tf.training import optimizers
from lab.experiments import declarations
from lab.experiments.preparation import Workspace
from tests import helpers

# Two logical devices, for the multi-device step; most tests use the first alone.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With --dist=loadfile, a process runs all tests of a file, and of all files in tests/tasks, which share runs."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            folder = file.rpartition("/")[0]
            return folder if folder == "tests/tasks" else file

    return Files(config, log)


# Files that take minutes: begun last, they would keep one process busy while the other has nothing left to do.
_LONG = ("tests/training/test_workers.py", "tests/test_notebook.py", "tests/test_kills.py")


def pytest_collection_modifyitems(items):
    """Puts the long files first."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))


def pytest_collection_finish():
    """What is in memory now stays there, so garbage collections, of which each training makes some, leave it out."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _return_memory():
    """Gives the system what a file's tests have freed: the C library keeps it, gigabytes in a process of all tests."""
    yield
    if sys.platform == "linux":
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.fixture
def tiny() -> AlbertConfig:
    return helpers.TINY


@pytest.fixture(scope="session")
def real_data() -> pathlib.Path:
    """The folder of real data; tests that want it are skipped without it."""
    if not os.environ.get("ALBERT_TEST_DATA"):
        pytest.skip("ALBERT_TEST_DATA is not set")
    return pathlib.Path(os.environ["ALBERT_TEST_DATA"]).resolve()


@pytest.fixture(scope="session")
def released_model_file(real_data) -> str:
    """The SentencePiece model of the released checkpoints."""
    return str(real_data / "vocab" / "30k-clean.model")


@pytest.fixture(scope="session")
def golden(real_data) -> pathlib.Path:
    """The folder of the original code's numbers, beside the real data."""
    return real_data.parent / "golden" / "a_lamb"


@pytest.fixture(scope="module", name="eagerly")
def eager_module():
    """In a module with this fixture, `helpers.eagerly` holds in every test."""
    with helpers.eagerly():
        yield


@pytest.fixture
def eager():
    """In a test with this fixture, too; the graphs of a tiny model take longer to build than its steps."""
    with helpers.eagerly():
        yield


@pytest.fixture
def unclipped(monkeypatch):
    """Updates that show the sizes of gradients: Adam's do not unless epsilon is large and nothing is clipped."""
    monkeypatch.setattr(optimizers, "EPSILON", 0.1)
    monkeypatch.setattr(optimizers, "MAX_GRADIENT_NORM", 0)


@pytest.fixture
def records_file(tmp_path) -> pathlib.Path:
    """A file of 60 random pretraining records."""
    return helpers.write_records(
        tmp_path / "records" / "examples.tfrecord", helpers.random_features(60)
    )


@pytest.fixture
def config_file(tmp_path) -> pathlib.Path:
    """The tiny configuration as a file."""
    path = tmp_path / "albert_config.json"
    path.write_text(helpers.TINY.to_json_string())
    return path


@pytest.fixture(scope="session")
def no_tensorflow(tmp_path_factory) -> dict[str, str]:
    """An environment in which the import of TensorFlow fails."""
    folder = tmp_path_factory.mktemp("stub")
    (folder / "tensorflow").mkdir()
    (folder / "tensorflow" / "__init__.py").write_text("raise SystemExit('TensorFlow imported')\n")
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="session")
def tiny_pretrained(tmp_path_factory) -> pathlib.Path:
    """A pretrained model's folder: a tiny configuration with 64 positions, random weights, a vocabulary of words."""
    from albert_tf import save_pretrained
    from albert_tf.model.heads import AlbertForPreTraining
    from albert_tf.text.tokenizer import Tokenizer

    folder = tmp_path_factory.mktemp("pretrained")
    options = {"model_type": "word", "vocab_size": 99, "hard_vocab_limit": False}
    spm = helpers.train_spm(folder / "words.model", [helpers.WORDS] * 3, **options)
    # Start values ten times as large as usual, so that outputs differ from example to example.
    config = helpers.TINY.replace(
        vocab_size=Tokenizer.from_file(spm).vocab_size,
        max_position_embeddings=64,
        num_hidden_layers=1,  # building graphs is what takes the time here
        initializer_range=0.2,
    )
    save_pretrained(AlbertForPreTraining(config, seed=4), folder / "model", spm_model_file=spm)
    return folder / "model"


@pytest.fixture(scope="session")
def task_files(tmp_path_factory) -> pathlib.Path:
    """A folder with small made-up data of every fine-tuning task: glue, tsv, squad, RACE, tagging, labels."""
    folder = tmp_path_factory.mktemp("tasks")
    for task in ("glue", "tsv", "squad", "race", "tagging", "labels"):
        make = getattr(helpers, f"{task}_files")
        helpers.write_files(folder, make(np.random.default_rng(3)))
    return folder


@pytest.fixture(scope="session")
def task_flags(task_files, tiny_pretrained) -> dict[str, tuple[str, list[str]]]:
    """Runner and flags of every task: data, the tiny model, twelve short steps."""
    tsv = task_files / "tsv"
    squad = task_files / "squad"
    glue = [f"--data_dir={task_files / 'glue'}", "--max_seq_length=33"]
    windows = ["--max_seq_length=40", "--doc_stride=13", "--max_query_length=9"]
    windows += ["--max_answer_length=6", f"--predict_file={squad / 'questions.json'}"]
    splits = {"train": "train", "eval": "dev", "predict": "test"}.items()
    tsv_flags = [f"--{flag}_file={tsv / name}.tsv" for flag, name in splits]
    tsv_flags += ["--text_columns=review", "--label_column=mood"]
    tsv_flags += ["--max_seq_length=33"]
    several = [f"--{flag}_file={task_files / 'labels' / name}.tsv" for flag, name in splits]
    several += ["--text_columns=review", "--label_column=topics", "--label_separator=;"]
    several += ["--class_weights=balanced", "--max_seq_length=23"]
    passages = [f"--data_dir={task_files / 'RACE'}", "--max_seq_length=48", "--max_qa_length=17"]
    words = [f"--{flag}_file={task_files / 'tagging' / name}.conll" for flag, name in splits]
    words += ["--nobias_correction"]  # longer first steps: twelve are few for entities
    data = {
        "tagging": ("tagger", [*words, "--max_seq_length=21", "--doc_stride=7"]),
        "mrpc": ("classifier", ["--task_name=MRPC", *glue]),
        "stsb": ("classifier", ["--task_name=STS-B", *glue]),
        "tsv": ("classifier", ["--task_name=tsv", *tsv_flags]),
        "labels": ("classifier", ["--task_name=tsv", *several]),
        "race": ("race", passages),
    }
    for version in ("1.1", "2.0"):
        named = {"train": f"train-v{version}.json", "eval": f"dev-v{version}.json"}
        files = [f"--{split}_file={squad / name}" for split, name in named.items()]
        data[f"squad{version}"] = ("squad", [f"--version={version}", *files, *windows])
    common = [f"--init_checkpoint={tiny_pretrained}", "--train_batch_size=6"]
    common += ["--num_train_steps=12", "--eval_batch_size=6", "--eval_every_steps=4"]
    common += ["--save_checkpoints_steps=3", "--learning_rate=0.01", "--log_every_steps=1"]
    return {name: (runner, [*flags, *common]) for name, (runner, flags) in data.items()}


@pytest.fixture(scope="session")
def finished(task_flags, tmp_path_factory) -> Callable[[str], helpers.FinishedRun]:
    """A function that gives the finished run of a task, with predictions and dropout; change nothing in its folder."""
    # Only SQuAD 1.1 is trained in graphs; the others take a third of the time without. MRPC is run with two seeds.

    @functools.cache
    def run(task: str) -> helpers.FinishedRun:
        runner, flags = task_flags[task]
        flags = [*flags, "--do_predict", "--deterministic", "--hidden_dropout_prob=0.1"]
        flags += ["--attention_probs_dropout_prob=0.1", "--seed=40"]
        folder = tmp_path_factory.mktemp(task) / "run"
        several = ["--num_runs=2"] if task == "mrpc" else []
        output = io.StringIO()
        in_graphs = contextlib.nullcontext() if task == "squad1.1" else helpers.eagerly()
        with contextlib.redirect_stdout(output), in_graphs:
            results = helpers.fine_tune_here(runner, *flags, *several, f"--output_dir={folder}")
        if several:
            folder = folder / "seed_40"
            results = json.loads((folder / "results.json").read_text())
        return helpers.FinishedRun(runner, flags, folder, results, output.getvalue())

    return run


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory) -> pathlib.Path:
    """Text of 60 documents, and passages of SQuAD and RACE; every passage speaks of a letter of its own."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(7)

    def text(sentences: int) -> str:
        words = rng.integers(0, 26, (sentences, 5))
        return " ".join(" ".join(chr(ord("a") + word) * 3 for word in line) + "." for line in words)

    for number in range(60):
        path = folder / "text" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text(12) + "\n")
    paragraphs = [
        {"context": helpers.passage(number), "qas": [{"id": str(index), "question": "Who?"}]}
        for index, number in enumerate((*range(18), 0))
    ]
    squad = {"data": [{"title": "t", "paragraphs": paragraphs}]}
    (folder / "squad").mkdir()
    (folder / "squad" / "dev-v1.1.json").write_text(json.dumps(squad))
    for number, level in enumerate(("middle", "high"), 18):
        path = folder / "race" / "dev" / level / "1.txt"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"article": helpers.passage(number)}))
    return folder


@pytest.fixture(scope="session")
def micro(tmp_path_factory) -> tuple[declarations.Scale, declarations.Experiment]:
    """A scale of seconds, and an experiment of two rows."""
    folder = tmp_path_factory.mktemp("declared")
    (folder / "micro.toml").write_text(helpers.MICRO)
    (folder / "mine.toml").write_text(helpers.MINE)
    scale = declarations.read_scale(str(folder / "micro.toml"))
    return scale, declarations.read_experiment(str(folder / "mine.toml"))


@pytest.fixture(scope="session")
def workspace(micro, data_dir, tmp_path_factory) -> Workspace:
    return Workspace(micro[0], str(data_dir), str(tmp_path_factory.mktemp("work")))
