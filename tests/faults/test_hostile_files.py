"""Damaged and hostile model files: one line or the same model; no traceback, other weights, hang or full memory.

Each format has a tiny model. Its files are damaged at random, by a fixed seed, and replaced by crafted ones. Folders
that this project writes have checksums, so that a damage is rejected or changes nothing. Files of other programs have
none: a damage may give other weights, which is counted as unknown.

ALBERT_TEST_FAULTS=all tries 2,900 random damages; otherwise a sample.
"""

import collections
import contextlib
import dataclasses
import functools
import io
import itertools
import json
import math
import os
import pathlib
import pickle
import random
import resource
import shutil
import signal
import zipfile

import h5py
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from albert_tf import AlbertForPreTraining, save_pretrained
from albert_tf.core.errors import UserError
from albert_tf.export import export_model
from albert_tf.formats import pretrained
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForSequenceClassification
from albert_tf.serving import predictors
from albert_tf.text.tokenizer import Tokenizer
from tests.formats.test_model_garden import CONFIG as GARDEN_CONFIG
from tests.formats.test_model_garden import pretrainer
from tests.formats.test_tf_hub import write_module
from tests.formats.test_torch_file import table, write_zip
from tests.helpers import ROOT, TINY, TRIES_ALL, train_spm, without_checksums

RECORDED = ROOT / "tests" / "recorded_outputs"
DAMAGES = 225 if TRIES_ALL else 12  # of each format
# For each file that is read: seconds of a processor, seconds, and memory besides what the process has.
SECONDS, HANGS, MEMORY = 10, 100, 2 << 30
OWN = ("own", "own_classifier", "own_tf1", "own_export")
FOREIGN = (
    *("safetensors", "torch_zip", "torch_legacy", "shards", "keras_hub"),
    *("tf1", "hub_module", "model_garden"),
)
RUN = "run"  # its config.json and checkpoints have no checksums
WORDS = ["a cat, a dog. a house - a tree 1999, and more"]


@dataclasses.dataclass(frozen=True)
class Model:
    """A model on disk, and what `read` gives for it; `path` is what is read, in the folder."""

    folder: pathlib.Path
    name: str
    path: str = ""

    def read(self):
        """All that users of a model read from its files, as comparable values."""
        weights = pretrained.read_weights(self.folder / self.path)
        vocabulary = b""
        if weights.vocabulary:
            tokenizer = Tokenizer.from_file(weights.vocabulary)
            assert tokenizer.encode("a cat, 1999,") is not None
            vocabulary = tokenizer.content
        predictors.task_settings_of(weights)
        sizes = weights.config.replace(foreign={}).to_dict()
        about = (weights.config.labels, weights.model_class, weights.do_lower_case)
        others = (*about, weights.task_settings, weights.left_out, vocabulary)
        return weights.arrays, (sizes, *others)


def same(first, second) -> bool:
    (arrays, others), (arrays_2, others_2) = first, second
    return (
        others == others_2
        and arrays.keys() == arrays_2.keys()
        and all(np.array_equal(array, arrays_2[name]) for name, array in arrays.items())
    )


class TookTooLong(BaseException):
    """A file was not read within `SECONDS`."""


@contextlib.contextmanager
def limited():
    def stop(*_):
        raise TookTooLong

    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    timers = {
        signal.ITIMER_PROF: (signal.SIGPROF, SECONDS),
        signal.ITIMER_REAL: (signal.SIGALRM, HANGS),
    }
    handlers = {number: signal.signal(number, stop) for number, _ in timers.values()}
    for timer, (_, seconds) in timers.items():
        signal.setitimer(timer, seconds)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, limits[1]))
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def outcome(model: Model, undamaged) -> str:
    """What comes of reading a damaged model; another exception than a UserError of one line fails the test."""
    try:
        with limited():
            found = model.read()
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 2000, str(error)[:3000]
        assert str(model.folder) in str(error), str(error)[:3000]
        return "rejected"
    return "identical" if same(found, undamaged) else "unknown"


# --- The models ---


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("vocabulary")
    return train_spm(
        folder / "words.model", WORDS, model_type="unigram", vocab_size=32, hard_vocab_limit=False
    )


@pytest.fixture(scope="module")
def models(vocabulary, tmp_path_factory):
    made = {}

    def model(name: str) -> Model:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            size = Tokenizer.from_file(vocabulary).vocab_size
            config = TINY.replace(vocab_size=size, num_hidden_layers=2, max_position_embeddings=32)
            path = MAKERS[name](folder, config, vocabulary)
            made[name] = Model(folder, name, path or "")
        return made[name]

    return model


def make_own(folder, config, vocabulary):
    save_pretrained(AlbertForPreTraining(config, seed=1), folder, spm_model_file=vocabulary)


def make_classifier(folder, config, vocabulary):
    model = AlbertForSequenceClassification(config.with_labels(["no", "yes"], "RTE"), seed=1)
    settings = {"max_seq_length": 30}
    save_pretrained(model, folder, spm_model_file=vocabulary, task=settings)


def make_tf1(folder, config, vocabulary):
    model = AlbertForPreTraining(config, seed=1)
    save_pretrained(model, folder, format="tf1", spm_model_file=vocabulary)


def make_foreign_tf1(folder, config, vocabulary):
    make_tf1(folder, config, vocabulary)
    without_checksums(folder)


def make_export(folder, config, vocabulary):
    make_classifier(folder / "model", config, vocabulary)
    export_model(str(folder / "model"), str(folder), warmup=False)
    shutil.rmtree(folder / "model")
    return "1"


def make_run(folder, config, vocabulary):
    model = AlbertForPreTraining(config, seed=1)
    save_pretrained(model, folder / "model", spm_model_file=vocabulary)
    settings = {"model": config.to_dict(), "task": {"do_lower_case": True}}
    (folder / "config.json").write_text(json.dumps(settings))
    checkpoint = tf.train.Checkpoint(model=model, global_step=tf.Variable(3))
    manager = tf.train.CheckpointManager(checkpoint, folder / "checkpoints", 9, None, "step")
    manager.save(checkpoint_number=3)


def make_safetensors(folder, config, vocabulary):
    make_classifier(folder, config, vocabulary)
    without_checksums(folder)


def make_torch(weights):
    def make(folder, *_):
        shutil.copy(RECORDED / "pretraining" / "config.json", folder)
        shutil.copy(RECORDED / weights, folder / "pytorch_model.bin")

    return make


def make_shards(folder, *_):
    shutil.copy(RECORDED / "pretraining" / "config.json", folder)
    tensors = safetensors.numpy.load_file(RECORDED / "pretraining" / "model.safetensors")
    places = {}
    for number in (0, 1):
        file = f"model-0000{number}-of-00002.safetensors"
        part = {name: tensors[name] for name in sorted(tensors)[number::2]}
        places |= dict.fromkeys(part, file)
        safetensors.numpy.save_file(part, folder / file)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def make_keras_hub(folder, *_):
    with zipfile.ZipFile(RECORDED / "keras_hub.zip") as archive:
        archive.extractall(folder)
    for path in folder.iterdir():
        if path.name != "classifier":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return "classifier"


def make_module(folder, *_):
    write_module(folder / "made", TINY)
    shutil.move(folder / "made" / "module", folder / "module")
    for path in [*(folder / "module").rglob("*.model")]:
        path.unlink()  # is no vocabulary
    return "module"


def make_garden(folder, *_):
    tf.train.Checkpoint(encoder=pretrainer().encoder_network).write(str(folder / "ckpt"))
    names = {
        "embedding_size": "embedding_width",
        "num_hidden_layers": "num_layers",
        "hidden_act": "hidden_activation",
        "hidden_dropout_prob": "dropout_rate",
        "attention_probs_dropout_prob": "attention_dropout_rate",
    }
    sizes = [f"      {names.get(key, key)}: {value}" for key, value in GARDEN_CONFIG.items()]
    head = ["task:", "  model:", "    encoder:", "      type: albert", "      albert:"]
    text = "\n".join([*head, *(f"  {line}" for line in sizes)])
    (folder / "params.yaml").write_text(text)


MAKERS = {
    "own": make_own,
    "own_classifier": make_classifier,
    "own_tf1": make_tf1,
    "own_export": make_export,
    "safetensors": make_safetensors,
    "torch_zip": make_torch("zip.bin"),
    "torch_legacy": make_torch("legacy.bin"),
    "shards": make_shards,
    "keras_hub": make_keras_hub,
    "tf1": make_foreign_tf1,
    "hub_module": make_module,
    "model_garden": make_garden,
    RUN: make_run,
}


@pytest.fixture(scope="module")
def figures():
    """Numbers of outcomes, by kind of model; printed at the end (pytest -s)."""
    counts = collections.Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield counts
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    for (kind, name, result), number in sorted(counts.items()):
        print(f"\n{kind:10} {name:15} {result:10} {number:5}", end="")
    print(f"\nthe largest memory of the process grew by {grown >> 10} MB")


# --- Random damages ---

VALUES = (
    *(None, True, False, 0, 1, -1, 3, 10**9, 2**31, 2**63, 10**400, 0.5, -0.5, 1e308),
    *(math.inf, math.nan, "", "x", "1", "\x00", "\ud800", "é", "x" * 100_000, "../../x"),
    *("/dev/zero", [], [[]], ["x"], [1], {}, {"a": {}}, {"-1": "a"}, {"0": 1}),
)


def places_in(value, path=()):
    yield path
    if isinstance(value, dict):
        for key, child in value.items():
            yield from places_in(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value[:5]):
            yield from places_in(child, (*path, index))


def changed_json(content: bytes, generator: random.Random) -> bytes:
    value = json.loads(content)
    places = [place for place in places_in(value) if place]
    *path, last = generator.choice(places or [()]) or ("",)
    level = value
    for key in path:
        level = level[key]
    kind = generator.randrange(10)
    if kind == 0:
        del level[last]
    elif kind == 1 and isinstance(level, dict):
        key = generator.choice(["x", "", "_x", "albert_tf", "vocab_size"])
        level[key] = generator.choice(VALUES)
    else:
        level[last] = generator.choice(VALUES) if kind > 2 else "NESTED"
    depth = generator.choice([50, 400, 600, 900, 1100, 100_000])
    return json.dumps(value).replace('"NESTED"', "[" * depth + "]" * depth, 1).encode()


def damaged(content: bytes, others: list[bytes], generator: random.Random) -> bytes:
    content = bytearray(content)
    size = len(content)
    start = generator.randrange(size + 1)
    end = min(size, start + generator.choice([1, 4, 16, 300]))
    match generator.randrange(9):
        case 0 | 1 | 2 if size:
            for _ in range(generator.choice([1, 1, 3])):
                # The beginning of a file says what it is.
                most = generator.choice([size, min(size, 200)])
                content[generator.randrange(most)] ^= 1 << generator.randrange(8)
        case 3:
            del content[start:]
        case 4:
            content[start:end] = bytes(end - start)
        case 5:
            content[start:end] = b"\xff" * (end - start)
        case 6:
            content[start:start] = generator.randbytes(generator.choice([1, 4, 8, 100]))
        case 7:
            del content[start:end]
        case _:
            return generator.choice(others)
    return bytes(content)


@pytest.mark.parametrize("name", [*OWN, *FOREIGN, RUN])
def test_a_random_damage_is_rejected_or_changes_nothing(name, models, figures):
    model = models(name)
    undamaged = model.read()
    generator = random.Random(f"seed 1 {name}")
    contents = {path: path.read_bytes() for path in model.folder.rglob("*") if path.is_file()}
    paths = sorted(path for path in contents if path.suffix not in (".md", ".pb") or TRIES_ALL)
    for number in range(DAMAGES):
        path = generator.choice(paths)
        others = [content for other, content in contents.items() if other != path]
        is_json = path.suffix == ".json" and generator.random() < 0.7
        damage = changed_json if is_json else functools.partial(damaged, others=others)
        new = damage(contents[path], generator=generator)
        path.write_bytes(new)
        try:
            result = outcome(model, undamaged)
        except BaseException as error:
            where = path.relative_to(model.folder)
            raise AssertionError(f"damage {number} of {where}: {new[:2000]}") from error
        finally:
            path.write_bytes(contents[path])
        figures["random", name, result] += 1
        assert name not in OWN or result != "unknown", f"damage {number} of {path}"
    assert same(model.read(), undamaged)


# --- Crafted files ---


@pytest.mark.parametrize("name", [*OWN, *FOREIGN, RUN])
def test_pipes_devices_and_missing_files_are_rejected_or_not_read(name, models, figures):
    model = models(name)
    undamaged = model.read()
    for path in sorted(path for path in model.folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for make in (
            *(os.mkfifo, os.mkdir, pathlib.Path.touch, lambda path: None),
            *(lambda path: os.symlink("/dev/zero", path), lambda path: os.symlink(path, path)),
            lambda path: os.symlink("/dev/tty", path),
        ):
            path.unlink()
            make(path)
            try:
                result = outcome(model, undamaged)
            finally:
                if path.is_dir():
                    path.rmdir()
                else:
                    path.unlink(missing_ok=True)
                path.write_bytes(content)
            figures["crafted", name, result] += 1
            is_optional = path.name.startswith(OPTIONAL) or path.suffix == ".model"
            assert result != "unknown" or (is_optional and name not in OWN), f"{path}: {make}"
    assert same(model.read(), undamaged)


# Without them, a folder of another program is another model: without labels, or with text of both cases.
OPTIONAL = ("tokenizer_config.json", "task.json", "albert_config.json")
FIELDS = [field.name for field in dataclasses.fields(AlbertConfig) if field.name != "foreign"]
# Before any memory is needed.
WRONG = (True, -1, 0, 10**9, 10**400, math.inf, -math.inf, math.nan, "x", [], {}, ["a"] * 3)


@pytest.mark.parametrize("name", ["safetensors", "tf1"])
def test_a_wrong_size_is_rejected(name, models, figures):
    model = models(name)
    undamaged = model.read()
    path = model.folder / {"safetensors": "config.json", "tf1": "albert_config.json"}[name]
    content = path.read_text()
    for field in FIELDS:
        for value in WRONG if TRIES_ALL else WRONG[:6]:
            if field == "share_parameters" and name == "safetensors":
                continue  # its own section decides
            values = {**json.loads(content), field: value}
            if field == "num_hidden_groups" and name == "safetensors":
                values["albert_tf"] = {**values["albert_tf"], field: value}
            path.write_text(json.dumps(values))
            result = outcome(model, undamaged)
            figures["crafted", name, result] += 1
            # Rates and the range of initial values are free within their bounds.
            is_free = value == 0 and type(value) is int and field.endswith(("prob", "range"))
            assert result == "rejected" or is_free, f"{field}={value!r}"
    path.write_text(content)


def write_h5(path, make):
    with h5py.File(path, "r+") as file:
        sizes = {}
        file.visititems(lambda name, item: sizes.__setitem__(name, getattr(item, "size", 0)))
        largest = max(sizes, key=sizes.get)
        shape = file[largest].shape
        del file[largest]
        make(file, largest, shape)


HDF5 = {
    "never written": lambda file, name, shape: file.create_dataset(
        name, (900_000_000, 1), "f4", chunks=(1000, 1), fillvalue=1
    ),
    "compressed": lambda file, name, shape: file.create_dataset(
        name, data=np.zeros((5_000_000, 1), "f4"), compression="gzip"
    ),
    "strings": lambda file, name, shape: file.create_dataset(name, data=["x"]),
    "a group": lambda file, name, shape: file.create_group(name),
    "no values": lambda file, name, shape: file.create_dataset(name, (0, 7), "f4"),
    "one value": lambda file, name, shape: file.create_dataset(name, (), "f4"),
    "nan": lambda file, name, shape: file.create_dataset(name, data=np.full(shape, np.nan)),
    "inf in float32": lambda file, name, shape: file.create_dataset(
        name, data=np.full(shape, 1e300)
    ),
    "complex": lambda file, name, shape: file.create_dataset(name, shape, "c8"),
    "a link": lambda file, name, shape: file.__setitem__(
        name, h5py.ExternalLink("/etc/passwd", "/x")
    ),
    "a soft link": lambda file, name, shape: file.__setitem__(name, h5py.SoftLink("/" + name)),
}


def yaml_bomb(levels: int) -> bytes:
    lines = ["a0: &a0 {x0: 1, y0: 2, z0: 3}"]
    for level in range(1, levels):
        before = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} {{<<: [{before}]}}")
    return "\n".join(lines).encode()


def no_tensors() -> bytes:
    buffer = io.BytesIO()
    write_zip(buffer, table())
    return buffer.getvalue()


# Code and other sizes than those of the values: tests/formats/test_torch_file.py.
TORCH = {
    "no tensors": no_tensors(),
    "a number": pickle.dumps(3, 2),
    "deep": b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b".",
}


def save_v2(folder, **changes):
    """Replaces variables of the TF1 checkpoint; a tuple is a value and the shape and place that it claims."""
    prefix = str(folder / "model.ckpt-best")
    reader = tf.train.load_checkpoint(prefix)
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    tensors |= {name.replace("__", "/"): value for name, value in changes.items()}
    claims = [value[1] if isinstance(value, tuple) else "" for value in tensors.values()]
    values = [value[0] if isinstance(value, tuple) else value for value in tensors.values()]
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=list(tensors), shape_and_slices=claims, tensors=values
    )


WORD_TABLE = "bert__embeddings__word_embeddings"
TF1 = {
    "a claimed size": lambda folder: save_v2(
        folder, **{WORD_TABLE: (tf.zeros([1, 1]), "1000000 1000000 0,1:0,1")}
    ),
    "strings": lambda folder: save_v2(folder, **{WORD_TABLE: tf.constant(["x"])}),
    "whole numbers": lambda folder: save_v2(folder, **{WORD_TABLE: tf.zeros([2, 2], tf.int32)}),
    "no values": lambda folder: save_v2(folder, **{WORD_TABLE: tf.zeros([0, 7])}),
    "nan": lambda folder: save_v2(folder, extra=tf.constant([math.nan])),
    "inf": lambda folder: save_v2(folder, extra=tf.constant([math.inf])),
    "inf in float32": lambda folder: save_v2(folder, extra=tf.constant([1e300], tf.float64)),
}

LISTINGS = (
    b"",
    b"\xff\xfe",
    b"model_checkpoint_path: \xff",
    b'model_checkpoint_path: "\xff"',
    b'model_checkpoint_path: "/dev/zero"',
    b'model_checkpoint_path: "../checkpoints"',
    b'model_checkpoint_path: "' + b"x" * 100_000 + b'"',
    b"{" * 100_000,
    bytes(1000),
)
YAML = {
    **{f"merge keys, {levels} levels": yaml_bomb(levels) for levels in (5, 9, 30)},
    "deep": b"[" * 100_000,
    "large": b"a: b\n" * 1_000_000,
    "code": b"!!python/object/apply:os.system ['touch attacked']",
    "no names": b"? [a, b]\n: 3",
}
CHECKSUMS = {
    "no list": b"",
    "another list": b"x  y\n",
    "outside": b"0" * 64 + b"  ../x\n",
    "a null character": b"0" * 64 + b"  a\0b\n",
    "itself": b"0" * 64 + b"  SHA256SUMS\n",
    "a device": b"0" * 64 + b"  /dev/zero\n",
}
DEPTHS = (500, 900, 100_000)
SHARDS = ("a\0b", "", "..", "/dev/zero", "model.safetensors.index.json", "x" * 300)


def deepen(folder, depth):
    for path in folder.rglob("*.json"):
        text = path.read_text().strip()
        path.write_text(f'{{"_x": {"[" * depth}{"]" * depth}, {text[1:]}')


def name_shard(folder, file):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][next(iter(index["weight_map"]))] = file
    path.write_text(json.dumps(index))


def write_h5_of(folder, make):
    write_h5(folder / "classifier" / "model.weights.h5", make)


def write_content(folder, path, content):
    (folder / path).write_bytes(content)


def crafted():
    """Name of a model, name of the damage, and a function that does it to a folder."""
    contents = {
        ("torch_zip", "pytorch_model.bin"): TORCH,
        (RUN, "checkpoints/checkpoint"): {str(content[:50]): content for content in LISTINGS},
        ("model_garden", "params.yaml"): YAML,
        ("own", "SHA256SUMS"): CHECKSUMS,
    }
    for (model, path), named in contents.items():
        for name, content in named.items():
            yield model, name, functools.partial(write_content, path=path, content=content)
    yield from (("tf1", name, change) for name, change in TF1.items())
    changes = [("keras_hub", name, write_h5_of, make) for name, make in HDF5.items()]
    changes += [("shards", f"a shard {file[:20]!r}", name_shard, file) for file in SHARDS]
    for model, depth in itertools.product(
        ("safetensors", "shards", "keras_hub", "tf1", RUN), DEPTHS
    ):
        changes.append((model, f"JSON of depth {depth}", deepen, depth))
    for model, name, change, argument in changes:
        yield model, name, lambda folder, c=change, a=argument: c(folder, a)


@pytest.mark.parametrize(
    "name,damage,make", [pytest.param(*c, id=f"{c[0]}: {c[1]}") for c in crafted()]
)
def test_a_crafted_file_is_rejected(name, damage, make, models, figures, tmp_path):
    model = models(name)
    undamaged = model.read()
    folder = tmp_path / "model"
    shutil.copytree(model.folder, folder)
    make(folder)
    result = outcome(Model(folder, name, model.path), undamaged)
    figures["crafted", name, result] += 1
    # Deep JSON may be under a key that is ignored; a run is read without TensorFlow's list of its checkpoints.
    may_load = "JSON of depth" in damage or damage.startswith("b'")
    assert result == "rejected" or (may_load and result == "identical")
    assert not pathlib.Path("attacked").exists()
