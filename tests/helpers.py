"""What tests share besides fixtures: a tiny configuration, random features, runners in this process, small data."""

import contextlib
import dataclasses
import functools
import importlib
import io
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import pytest
import safetensors.numpy
import sentencepiece
import tensorflow as tf

from albert_tf.core import flags as cli
from albert_tf.core.errors import UserError
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks import runner as runner_program
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.registry import CLASSIFICATION, EMBEDDING, RACE, SQUAD, TAGGING
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig
from albert_tf.training.settings import OptimizerConfig, RunConfig

ROOT = pathlib.Path(__file__).parent.parent


# Batch 6, length 11 and 8 predictions go with it: no two sizes are equal, so that no coincidence passes.
TINY = AlbertConfig(
    vocab_size=101,
    embedding_size=7,
    hidden_size=20,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=19,
    max_position_embeddings=17,
    type_vocab_size=2,
)


BATCH, LENGTH, PREDICTIONS = 6, 11, 8


def random_features(num_examples: int, seed: int = 0, vocab_size: int = TINY.vocab_size) -> dict:
    """Pretraining features [B, values] of random tokens, with padding and empty prediction slots."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, LENGTH + 1, num_examples)[:, None]
    positions = np.arange(LENGTH)[None]
    real = (positions < lengths).astype(np.int32)
    num_masked = rng.integers(1, PREDICTIONS, num_examples)[:, None]
    weights = (np.arange(PREDICTIONS)[None] < num_masked).astype(np.float32)
    shape = (num_examples, PREDICTIONS)
    return {
        "input_ids": rng.integers(5, vocab_size, (num_examples, LENGTH)).astype(np.int32) * real,
        "input_mask": real,
        "segment_ids": (positions > lengths // 2).astype(np.int32) * real,
        "masked_lm_positions": (rng.integers(0, 5, shape) * weights).astype(np.int32),
        "masked_lm_ids": (rng.integers(5, vocab_size, shape) * weights).astype(np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": rng.integers(0, 2, (num_examples, 1)).astype(np.int32),
    }


def noisy(model, seed: int = 1, deviation: float = 0.2):
    """The model with noise on every variable, so that every bias and LayerNorm has an effect."""
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign_add(rng.normal(0, deviation, variable.shape).astype(np.float32))
    return model


def write_records(path: pathlib.Path, features: dict) -> pathlib.Path:
    """Writes features as TFRecords with TensorFlow's own writer."""

    def value(row):
        if row.dtype == np.float32:
            return tf.train.Feature(float_list=tf.train.FloatList(value=row))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=row))

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for index in range(len(features["input_ids"])):
            feature = {name: value(rows[index]) for name, rows in features.items()}
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    return path


def run_script(script: str, *arguments: object, timeout: float = 240, **environment: str):
    """Runs a script of the project, or "-m module", as a user would; returns the finished process with its output."""
    command = [sys.executable, *script.split(), *map(str, arguments)]
    options = {"cwd": ROOT, "env": {**os.environ, **environment}, "timeout": timeout}
    return subprocess.run(command, capture_output=True, text=True, **options)


def run_until_logged(output_dir: pathlib.Path, num_lines: int, script: str, *flags: object) -> None:
    """Starts a training in a process of its own, and kills it when its log has so many lines."""
    process = subprocess.Popen(
        [sys.executable, script, *map(str, flags), f"--output_dir={output_dir}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = output_dir / "metrics.jsonl"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if log.exists() and log.read_text().count("\n") >= num_lines:
            break
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it ended before it was killed"


def error_of(function: Callable, *arguments: object, **options: object) -> str:
    """The one line of the error that a call must end with."""
    with pytest.raises(UserError) as caught:
        function(*arguments, **options)
    line = str(caught.value)
    assert len(line.splitlines()) == 1 and len(line) < 600
    return line


def the_line(process) -> str:
    """What a program that failed printed: one line, no traceback."""
    assert process.returncode != 0
    # A line of progress may come before: on a busy machine, or where functions are compiled.
    lines = [line for line in process.stderr.splitlines() if not line.endswith(" left")]
    assert len(lines) == 1 and "Traceback" not in lines[0], process.stderr
    return lines[0]


def pretrain_here(*arguments: object) -> dict:
    """Runs run_pretraining.py's work inside this process, without the start-up; returns its results."""
    from albert_tf.tasks.pretraining.task import PretrainingTask
    from albert_tf.training import loop

    classes = (RunConfig, OptimizerConfig, PretrainingConfig)
    words = ["run_pretraining.py", *map(str, arguments)]
    run, optimizer, pretraining = cli.parse(classes, words)
    return loop.run(lambda: PretrainingTask(pretraining, run), run, optimizer)


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Within the block, TensorFlow's functions run operation by operation: no time is spent on tracing."""
    tf.config.run_functions_eagerly(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*run_functions_eagerly.*")
            yield
    finally:
        tf.config.run_functions_eagerly(False)


def program_here(name: str, *arguments: object) -> None:
    """Runs a program, by the name of its module in `albert_tf`, inside this process, without the start-up."""
    module = importlib.import_module(f"albert_tf.{name}")
    with mock.patch.object(cli, "run") as run:
        module.run()
    main, *classes = run.call_args.args
    main(*cli.parse(classes, [name, *map(str, arguments)], run.call_args.kwargs.get("defaults")))


def train_spm(path: pathlib.Path, sentences: Iterable[str], **changes: object) -> str:
    """Trains a small SentencePiece model that has ALBERT's control tokens; returns its path."""
    settings = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "character_coverage": 1.0}
    settings |= {"pad_piece": "<pad>", "unk_piece": "<unk>", "minloglevel": 2, "num_threads": 1}
    settings["control_symbols"] = ["[CLS]", "[SEP]", "[MASK]"]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, **settings | changes
    )
    path.write_bytes(model.getvalue())
    return str(path)


def made_up_text(num_documents, seed, num_sentences=(2, 12)):
    """Documents of sentences of invented words, frequent and rare ones."""
    rng = random.Random(seed)
    syllables = ["ka", "lo", "mi", "ter", "un", "sel", "do", "ri", "pan", "eth"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(300)]
    weights = [1 / (rank + 3) for rank in range(300)]

    def sentence():
        text = " ".join(rng.choices(words, weights, k=rng.randint(3, 12)))
        return f"{text.capitalize()}{rng.choice('.?!')}"

    return "\n\n".join(
        "\n".join(sentence() for _ in range(rng.randint(*num_sentences)))
        for _ in range(num_documents)
    )


def write_files(folder: pathlib.Path, files: Mapping[str, str | bytes]) -> None:
    """Writes files, by their names, and the folders in them."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_tf1_checkpoint(prefix: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint of variables by their names, as TensorFlow 1 does."""
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(arrays),
        shape_and_slices=[""] * len(arrays),
        tensors=list(arrays.values()),
    )


_SIZES_OF_BERT = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
# A part of a layer here -> in google-research/bert, modeling.py.
_PARTS_OF_BERT = {
    "attention_1/": "attention/",
    "ffn_1/intermediate/output/": "output/",
    "ffn_1/": "",
    "/LayerNorm_1/": "/output/LayerNorm/",
}


def write_bert_of_tf1(
    folder: pathlib.Path,
    config: AlbertConfig,
    arrays: Mapping[str, np.ndarray],
    **settings: object,
) -> list[str]:
    """Writes arrays under the names of google-research/bert, with its configuration; returns the names.

    `settings` are added to its `bert_config.json`.
    """
    renamed = {}
    for name, array in arrays.items():
        if "group_" in name:
            name = name.replace("transformer/group_", "layer_").replace("/inner_group_0", "")
            name = name.replace("/LayerNorm/", "/attention/output/LayerNorm/")
            for ours, theirs in _PARTS_OF_BERT.items():
                name = name.replace(ours, theirs)
        renamed[name] = array
    folder.mkdir()
    write_tf1_checkpoint(folder / "bert_model.ckpt", renamed)
    sizes = {name: getattr(config, name) for name in _SIZES_OF_BERT}
    content = json.dumps({**sizes, "hidden_act": "gelu", **settings})
    (folder / "bert_config.json").write_text(content)
    return list(renamed)


def documents_in(path: pathlib.Path) -> list[list[str]]:
    return [document.splitlines() for document in path.read_text("utf-8").split("\n\n")]


RUNNERS = {"classifier": CLASSIFICATION, "squad": SQUAD, "race": RACE}
RUNNERS |= {"tagger": TAGGING, "embedder": EMBEDDING}


def fine_tuning_settings(runner: str, *arguments: object) -> list[Any]:
    """The settings that run_<runner>.py makes of its command line, flags and lists of them: run, optimizer, task."""
    definition = RUNNERS[runner]
    classes = (FineTuningRunConfig, FineTuningOptimizerConfig, definition.settings)
    defaults = functools.partial(runner_program.defaults, definition)
    flags = [arg for each in arguments for arg in (each if isinstance(each, list) else [each])]
    return cli.parse(classes, [f"run_{runner}.py", *map(str, flags)], defaults)


def fine_tune_here(runner: str, *arguments: object) -> dict:
    """Runs the work of run_<runner>.py inside this process, without the start-up; returns its results."""
    from albert_tf.tasks import repeated_runs

    run, optimizer, config = fine_tuning_settings(runner, *arguments)
    return repeated_runs.fine_tune(RUNNERS[runner].task, config, run, optimizer)


def make_task(runner: str, *arguments: object):
    """The task of run_<runner>.py as the loop gets it."""
    run, _, config = fine_tuning_settings(runner, *arguments, "--output_dir=unused")
    return RUNNERS[runner].task(config, run)


def batch_of(task, split: str, examples: Sequence[int], length: int = 0) -> dict[str, tf.Tensor]:
    """Features of examples of a task, padded to a length, or to that of the split's longest example."""
    table = task.tables[split]
    length = length or table.lengths.max()
    features = table.batch(np.array(examples), length, task.source.names(split))
    return {name: tf.constant(value) for name, value in features.items()}


NAMES = "anna bert carl dora emil fran gert hana ivan jane"
WORDS = (
    f"{NAMES} good bad fine red blue green cat dog bird house tree river who where what when is was in the a of"
    " saw met left came to from and then with near under small large old new . ? _"
)


def sentence(rng: np.random.Generator, least: int, most: int) -> str:
    return " ".join(rng.choice(WORDS.split()[:-3], rng.integers(least, most + 1))) + " ."


def label_of(text: str) -> int:
    """0, 1 or 2, which of the words good, bad and fine a text has most of; the first of equals."""
    return int(np.argmax([text.split().count(word) for word in ("good", "bad", "fine")]))


def glue_files(rng: np.random.Generator) -> dict[str, str]:
    """MRPC and STS-B, in their official columns."""
    found = {}
    sizes = {"train": 22, "dev": 13, "test": 9}
    start = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
    for split, size in sizes.items():
        is_test = split == "test"
        mrpc = [f"{'index' if is_test else 'Quality'}\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        stsb = [start if is_test else f"{start}\tscore"]
        for row in range(size):
            first = sentence(rng, 2, 14)
            second = sentence(rng, 2, 14)
            label = row if is_test else int(label_of(first) == label_of(second))
            mrpc.append(f"{label}\t{row}\t{row}\t{first}\t{second}")
            score = "" if is_test else f"\t{rng.uniform(0, 5):.3f}"
            stsb.append(f"{row}\tg\tf\t2012\t{row}\tn\tm\t{first}\t{second}{score}")
        found[f"glue/MRPC/{split}.tsv"] = "\n".join(mrpc) + "\n"
        found[f"glue/STS-B/{split}.tsv"] = "\n".join(stsb) + "\n"
    return found


def tsv_files(rng: np.random.Generator) -> dict[str, str]:
    """A task of one's own with three labels; the file to predict for has none."""
    found = {}
    for split, size in {"train": 23, "dev": 12, "test": 7}.items():
        lines = ["name\treview" + ("" if split == "test" else "\tmood")]
        for row in range(size):
            text = sentence(rng, 1, 30)
            mood = "" if split == "test" else "\t" + ("good", "bad", "fine")[label_of(text)]
            lines.append(f"{split}-{row}\t{text}{mood}")
        found[f"tsv/{split}.tsv"] = "\n".join(lines) + "\n"
    return found


def labels_files(rng: np.random.Generator) -> dict[str, str]:
    """A task of one's own with four labels, any number of them for a text; few texts have the last."""
    kinds = {"animal": "cat dog bird", "colour": "red blue", "mood": "good bad", "name": "jane"}
    found = {}
    for split, size in {"train": 28, "dev": 31, "test": 7}.items():
        lines = ["review" + ("" if split == "test" else "\ttopics")]
        for _ in range(size):
            text = sentence(rng, 1, 20)
            kinds_of_text = [
                kind for kind, words in kinds.items() if {*words.split()} & {*text.split()}
            ]
            lines.append(text if split == "test" else f"{text}\t{'; '.join(kinds_of_text)}")
        found[f"labels/{split}.tsv"] = "\n".join(lines) + "\n"
    return found


def squad_files(rng: np.random.Generator) -> dict[str, str]:
    """SQuAD 1.1 and 2.0 with two articles each, and questions without answers."""
    found = {}
    for version in ("1.1", "2.0"):
        for split in ("train", "dev"):
            articles = []
            for number, lengths in enumerate([(11, 70), (33,)]):
                start = f"{split}-{number}"
                paragraphs = [squad_paragraph(rng, version, f"{start}-{n}", n) for n in lengths]
                articles.append({"title": f"Title {number}", "paragraphs": paragraphs})
            content = json.dumps({"version": version, "data": articles})
            found[f"squad/{split}-v{version}.json"] = content
    plain = squad_paragraph(rng, "2.0", "plain", 45)
    for question in plain["qas"]:
        del question["answers"], question["is_impossible"]
    found["squad/questions.json"] = json.dumps({"data": [{"paragraphs": [plain]}]})
    return found


def squad_paragraph(rng: np.random.Generator, version: str, id: str, length: int) -> dict:
    """A context of so many words with three questions; the last is impossible in SQuAD 2.0."""
    context = sentence(rng, length, length)
    words = context.split()
    questions = []
    for number in range(3):
        first = int(rng.integers(0, len(words) - 3))
        text = " ".join(words[first : first + int(rng.integers(1, 4))])
        answer = {"text": text, "answer_start": len(" ".join(words[:first])) + bool(first)}
        asked = {"id": f"{id}-{number}", "question": f"who is {words[first]} ?"}
        is_impossible = version == "2.0" and number == 2
        asked |= {"is_impossible": is_impossible} if version == "2.0" else {}
        questions.append({**asked, "answers": [] if is_impossible else [answer]})
    return {"context": context, "qas": questions}


def race_files(rng: np.random.Generator) -> dict[str, str]:
    """RACE's three splits, passages of middle and of high schools."""
    found = {}
    for split, numbers in {"train": (2, 3), "dev": (2, 1), "test": (1, 1)}.items():
        for level, count in zip(("middle", "high"), numbers, strict=True):
            for number in range(count):
                article = sentence(rng, 3, 60)
                gap = f"{sentence(rng, 2, 5)} _ {sentence(rng, 1, 2)}"
                passage = {
                    "id": f"{level}{number}.txt",
                    "article": article,
                    "questions": [gap, sentence(rng, 2, 9)],
                    "options": [[sentence(rng, 1, 6) for _ in range(4)] for _ in range(2)],
                    "answers": list(rng.choice(list("ABCD"), 2)),
                }
                if split == "test":
                    del passage["answers"]
                found[f"RACE/{split}/{level}/{number}.txt"] = json.dumps(passage)
    return found


def tagging_files(rng: np.random.Generator) -> dict[str, str]:
    """Sentences whose runs of names are persons and whose red and blue things have a type too; some are long."""
    found = {}
    sizes = {"train": (3, 40, *[9] * 19), "dev": (50, *[7] * 11), "test": (5, 33)}
    for split, lengths in sizes.items():
        lines = []
        for length in lengths:
            words = sentence(rng, length, length).split()
            previous = ""
            for word in words:
                type = ""
                if word in NAMES.split():
                    type = "PER"
                elif word in ("red", "blue"):
                    type = "COLOUR"
                tag = "O"
                if type:
                    tag = f"I-{type}" if type == previous else f"B-{type}"
                lines.append(word if split == "test" else f"{word} x {tag}")
                previous = type
            lines.append("")
        found[f"tagging/{split}.conll"] = "\n".join(lines)
    return found


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A run of `fine_tune_here`: what it returned, and what it printed."""

    runner: str
    flags: list[str]  # all but --output_dir
    folder: pathlib.Path
    results: dict
    output: str


def passage(number: int) -> str:
    """Six sentences: each says the number of its passage and its own, in letters."""
    letter = chr(ord("a") + number)
    return " ".join(f"{letter * 3} {'uvwxyz'[index] * 3}." for index in range(6))


MICRO = """
title = "seconds"
seeds = [1, 2]
seconds = 1

[texts]
standard = ["text"]

[vocabulary]
vocab_size = 70

[data]
max_seq_length = 24
max_predictions_per_seq = 4
dupe_factor = 1
record_format = "packed"
single_segment = "clean"

[training]
learning_rate = 0.003
train_batch_size = 6
num_train_steps = 8
num_warmup_steps = 2
log_every_steps = 2
eval_every_steps = 4
max_eval_steps = 1
save_checkpoints_steps = 4

[model]
max_position_embeddings = 24
vocab_size = 70

[sizes]
embedding_size = { 128 = 7 }
hidden_size = { 768 = 12 }
num_attention_heads = { 12 = 3 }
num_hidden_layers = { 1 = 1, 12 = 2 }

[intrinsic]
max_examples = 30
max_probe_examples = 30

[speed]
num_train_steps = 6
log_every_steps = 2

[tasks.mrpc]
max_seq_length = 20
num_train_steps = 3
"""


MINE = """
title = "Mine"
source = "here"
base = "albert-base-v1"
measures = ["parameters", "intrinsic", "layer_changes", "tasks"]
columns = ["parameters", "masked_lm", "sop", "sop_probe", "degrees_last", "roughness"]
tasks = ["mrpc"]
plot = "layers"

[[rows]]
name = "one layer"
model = { num_hidden_layers = 1 }
paper = { masked_lm = 50.0 }

[[rows]]
name = "two layers"
warm_start_from = "one layer"

[[claims]]
text = "Two layers are better"
metric = "masked_lm"
higher = "two layers"
lower = "one layer"
"""


def lines(path: pathlib.Path) -> list[dict]:
    """The lines of a run's log, without speeds; none if it does not exist."""
    found = map(json.loads, path.read_text().splitlines() if path.exists() else ())
    return [{k: v for k, v in line.items() if k != "examples_per_second"} for line in found]


def weights(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The weights of a finished run's model."""
    return safetensors.numpy.load_file(folder / "model" / "model.safetensors")


def assert_same_run(folder: pathlib.Path, expected: pathlib.Path) -> None:
    """Checks that logs, results and weights of two finished runs are equal, bit for bit."""
    for name in ("metrics.jsonl", "eval_metrics.jsonl"):
        assert lines(folder / name) == lines(expected / name), name
    results, wanted = (json.loads((run / "results.json").read_text()) for run in (folder, expected))
    for name in ("step", "eval", "best", "majority", "num_parameters"):
        assert results[name] == wanted[name], name
    found = weights(folder)
    for name, value in weights(expected).items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
