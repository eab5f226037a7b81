"""What users of other libraries write in Python: other names of methods, copies of predictors, other processes."""

import copy
import functools
import inspect
import os
import pathlib
import pickle
import re
import runpy
import subprocess
import sys

import numpy as np
import pytest
import tf_keras

import albert_tf
from albert_tf import Tokenizer, command, load_predictor, load_pretrained
from albert_tf.export import export_model
from albert_tf.formats import pretrained
from albert_tf.formats.model_tokenizer import tokenizer_of
from albert_tf.model import heads, process
from albert_tf.serving.finished_model import predictor_class_of, task_settings_of
from albert_tf.tasks.compiled import Compiled
from albert_tf.tasks.predictor import Predictor
from tests.helpers import ROOT, error_of, noisy, write_files

TEXTS = ["anna saw a dog", "the red house", "who left ?", "bert and carl"]


@pytest.fixture(scope="module")
def predictor(tiny_pretrained):
    return load_predictor(tiny_pretrained)


@pytest.fixture(scope="module")
def classifier(tiny_pretrained, tmp_path_factory):
    """The folder of a classifier of one text."""
    folder = tmp_path_factory.mktemp("classifier")
    model = noisy(load_pretrained(tiny_pretrained, num_labels=3))
    tokenizer = Tokenizer.from_pretrained(tiny_pretrained)
    task = {"max_seq_length": 20, "text_columns": "review"}
    pretrained.save_pretrained(model, folder, spm_model_file=tokenizer, task=task)
    return folder


# --- Names of methods ---


def test_encode_is_embed_and_one_text_has_one_vector(predictor):
    vectors = predictor.embed(TEXTS)
    np.testing.assert_array_equal(predictor.encode(TEXTS), vectors)
    vector = predictor.encode(TEXTS[1])
    assert vector.shape == vectors.shape[1:]
    np.testing.assert_allclose(vector, vectors[1], atol=1e-6)


def test_rank_returns_the_top_k(predictor):
    every = predictor.rank("a red dog", TEXTS)
    assert len(every) == 4
    for number in (1, 3, 9):
        assert predictor.rank("a red dog", TEXTS, top_k=number) == every[:number]
    for wrong in (0, -1, 1.5, True, "2"):
        assert "top_k must be an integer" in error_of(predictor.rank, "a", TEXTS, top_k=wrong)
        assert "top_k must be an integer" in error_of(predictor.rank, "a", [], top_k=wrong)


def test_a_call_answers_one_item_or_several(classifier):
    predictor = load_predictor(classifier)
    answers = predictor.predict(TEXTS)
    assert predictor(TEXTS) == answers
    assert predictor(TEXTS[0]) == predictor.predict(TEXTS[:1])[0]
    assert predictor({"review": TEXTS[0]}) == predictor(TEXTS[0])
    assert "predict expects a list of items" in error_of(predictor, 3)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("embed", (TEXTS,)),
        ("encode", (TEXTS,)),
        ("similarity", (TEXTS, TEXTS)),
        ("score", (TEXTS,)),
    ],
)
def test_what_a_model_cannot_do_is_one_line(classifier, name, arguments):
    assert "this model cannot" in error_of(getattr(load_predictor(classifier), name), *arguments)


def test_special_ids_have_the_names_of_transformers(tiny_pretrained):
    tokenizer = Tokenizer.from_pretrained(tiny_pretrained)
    for name in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(tokenizer, f"{name}_token_id") == getattr(tokenizer, f"{name}_id")


def test_a_name_of_the_hub_without_its_prefix_is_recognized(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = error_of(load_predictor, "sentence-transformers/all-MiniLM-L6-v2")
    assert line.endswith("write hf:sentence-transformers/all-MiniLM-L6-v2")
    (tmp_path / "runs").mkdir()
    for path in ("runs/mrpc", "./a/b", "/a/b", "a/b/c", "a"):  # paths, or too many parts
        assert "hf:" not in error_of(load_predictor, path), path


@pytest.mark.parametrize("length", [3, 4])
def test_the_shortest_length_is_that_of_the_flag(tiny_pretrained, length):
    if length == 4:
        predictor = load_predictor(tiny_pretrained, max_seq_length=4)
        np.testing.assert_array_equal(
            predictor.embed(["anna saw a dog"]), predictor.embed(["anna saw the house"])
        )
    else:
        line = error_of(load_predictor, tiny_pretrained, max_seq_length=3)
        assert "max_seq_length must be an integer of at least 4, got 3" in line


# --- Models and tokenizers ---


def test_model_classes_have_from_pretrained_and_save_pretrained(classifier, tmp_path):
    model = albert_tf.AlbertForSequenceClassification.from_pretrained(classifier)
    tokenizer = Tokenizer.from_pretrained(classifier)
    expected = model(tokenizer(TEXTS))["logits"]
    model.save_pretrained(tmp_path / "apart")
    tokenizer.save_pretrained(tmp_path / "apart")
    model.save_pretrained(tmp_path / "together", tokenizer=tokenizer)
    for name in ("apart", "together"):
        again = load_predictor(tmp_path / name, engine="tensorflow")
        np.testing.assert_array_equal(again.model(tokenizer(TEXTS))["logits"], expected)
        assert [again.tokenizer.encode(text) for text in TEXTS] == [
            tokenizer.encode(text) for text in TEXTS
        ]


def test_a_bare_encoder_is_saved_and_loaded(classifier, tmp_path):
    tokenizer = Tokenizer.from_pretrained(classifier)
    encoder = albert_tf.AlbertEncoder.from_pretrained(classifier)
    assert type(encoder) is albert_tf.AlbertEncoder
    expected = encoder(tokenizer(TEXTS))["pooled_output"]
    encoder.save_pretrained(tmp_path, tokenizer=tokenizer)
    again = albert_tf.AlbertEncoder.from_pretrained(tmp_path)
    np.testing.assert_array_equal(again(tokenizer(TEXTS))["pooled_output"], expected)
    line = error_of(load_predictor(tmp_path).predict, ["the [MASK] house"])  # no random head
    assert "its file has no values for cls/predictions/*" in line


@pytest.mark.parametrize("name", heads.MODEL_CLASSES)
def test_a_pretrained_model_opens_in_every_class(tiny_pretrained, name, caplog):
    model_class = heads.MODEL_CLASSES[name]
    has_labels = model_class in pretrained._WITH_LABELS
    if has_labels:
        assert "give num_labels" in error_of(model_class.from_pretrained, tiny_pretrained)
    model = model_class.from_pretrained(
        tiny_pretrained, **({"num_labels": 5} if has_labels else {})
    )
    assert type(model) is model_class
    assert not has_labels or len(model.config.labels) == 5
    says = name not in ("AlbertForPreTraining", *(c.__name__ for c in pretrained._WITH_LABELS))
    assert ("random values" in caplog.text) == says
    expected = load_pretrained(tiny_pretrained).encoder.get_weights()
    for found, value in zip(model.encoder.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("AlbertForPreTraining", {}, "is AlbertForSequenceClassification, expected AlbertForPreT"),
        ("AlbertForTokenClassification", {}, "expected AlbertForTokenClassification"),
        (
            "AlbertForSpan",
            {"num_labels": 2},
            "num_labels=2: the head of AlbertForSpan has no labels",
        ),
    ],
)
def test_a_model_of_another_class_is_one_line(classifier, name, options, message):
    model_class = heads.MODEL_CLASSES[name]
    assert message in error_of(model_class.from_pretrained, classifier, **options)


# --- Copies, and other processes ---


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
@pytest.mark.parametrize("kind", ["model", "onnx"])
def test_a_used_predictor_can_be_copied_and_pickled(
    classifier, copied, kind, tmp_path, monkeypatch
):
    folder = classifier
    if kind == "onnx":
        pytest.importorskip("onnxruntime")
        folder = tmp_path / "onnx"
        export_model(classifier, folder, format="onnx")
    monkeypatch.chdir(folder.parent)
    predictor = load_predictor(folder.name, batch_size=3, max_seq_length=9, do_lower_case=False)
    expected = predictor.predict(TEXTS)
    predictor.read_in_windows(True)
    monkeypatch.chdir("/")  # a process that has another current folder
    again = copied(predictor)
    assert again.task_settings == predictor.task_settings
    assert again.batch_size == 3 and not again.tokenizer.do_lower_case
    again.read_in_windows(False)
    assert again.predict(TEXTS) == expected


def test_a_predictor_of_a_model_in_memory_cannot_be_pickled(tiny_pretrained):
    weights = pretrained.read_weights(tiny_pretrained)
    model, _ = pretrained.build_model(weights)
    tokenizer = tokenizer_of(weights)
    settings = task_settings_of(weights)
    made = predictor_class_of(weights)(model, tokenizer, settings, 8, compute=Compiled(model))
    for copied in (pickle.dumps, copy.deepcopy):
        assert "save the model, and use load_predictor(path)" in error_of(copied, made)


def test_a_model_does_not_wait_for_ever_after_a_fork(tiny_pretrained, monkeypatch):
    """The guard comes before TensorFlow, which would never answer; here no process is forked."""
    in_tensorflow = functools.partial(load_predictor, tiny_pretrained, engine="tensorflow")
    predictor = in_tensorflow()
    predictor.embed(TEXTS)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    uses = [
        lambda: predictor.embed(TEXTS),
        lambda: predictor.model({"input_ids": [[2, 5, 3]]}),
        in_tensorflow,
    ]
    for use in uses:
        assert "this process was forked after TensorFlow had been used" in error_of(use)
    monkeypatch.setattr(process, "_first_user", None)  # forked before the first use
    assert in_tensorflow().embed(TEXTS).shape == (4, 20)


FORK = """
import os, sys
from albert_tf import load_predictor
predictor = load_predictor(sys.argv[1])
texts = ["anna saw a dog", "who left ?"] * 40
before = predictor.predict(texts), predictor("anna")
child = os.fork()
if not child:
    os._exit((predictor.predict(texts), predictor("anna")) != before)
assert "tensorflow" not in sys.modules
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_what_onnx_runtime_computes_answers_after_a_fork(classifier, tmp_path):
    pytest.importorskip("onnxruntime")
    export_model(classifier, tmp_path / "onnx", format="onnx")
    for model in (tmp_path / "onnx", classifier):
        command = [sys.executable, "-c", FORK, str(model)]
        assert subprocess.run(command, cwd=ROOT, timeout=120, check=False).returncode == 0


# --- Objects of Keras 3 ---


def _keras_3_object():
    """Keras 3 takes seconds to import; an object that it made is told by its module."""
    return type("Adam", (), {"__module__": "keras.src.optimizers.adam"})()


@pytest.mark.parametrize(
    "arguments",
    [
        {"optimizer": _keras_3_object()},
        {"loss": {"logits": _keras_3_object()}},
        {"metrics": ["accuracy", _keras_3_object()]},
        {"metrics": {"logits": [type("Mine", (type(_keras_3_object()),), {})()]}},
        {"weighted_metrics": [_keras_3_object()]},
    ],
)
def test_objects_of_keras_3_are_one_line(classifier, arguments):
    model = load_pretrained(classifier)
    line = error_of(model.compile, **{"optimizer": "sgd", **arguments})
    assert next(iter(arguments)) in line and "is of Keras 3: import tf_keras" in line
    model.compile(tf_keras.optimizers.SGD(0.1), {"logits": tf_keras.losses.MeanSquaredError()})
    line = error_of(model.fit, {"input_ids": [[2, 3]]}, callbacks=[_keras_3_object()])
    assert "Adam (callbacks) is of Keras 3" in line


# --- Types, and modules as programs ---


def _python_of(page: pathlib.Path) -> str:
    """The Python of a page that uses this library."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    of_package = [block for block in blocks if "albert_tf" in block]
    assert of_package, page
    return "\n".join(of_package)


@pytest.mark.slow
def test_type_checkers_accept_the_code_of_the_pages(tmp_path):
    names = (
        "README.md",
        "docs/guides/embeddings.md",
        "docs/guides/migrating.md",
        "docs/reference/models.md",
    )
    pages = [ROOT / name for name in names]
    write_files(tmp_path, {f"{page.stem.lower()}_page.py": _python_of(page) for page in pages})
    scripts = sorted(map(str, tmp_path.glob("*.py")))
    # Keras has no types; the pages are checked, and not this library again.
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nfollow_imports = silent\nignore_missing_imports = true\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental"]
    command += [f"--config-file={tmp_path / 'mypy.ini'}", *scripts]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_every_method_of_the_pages_is_declared():
    for name in ("predict", "embed", "encode", "similarity", "rank", "score"):
        assert inspect.isfunction(vars(Predictor)[name]), name


PROGRAMS = {**command.PROGRAMS, **command.DATA_PROGRAMS, "albert-tf": "albert_tf"}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_a_program_is_also_run_by_its_module(program, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    module = PROGRAMS[program]
    if module.endswith(".definition"):
        with pytest.raises(SystemExit, match=f"run albert-tf {program}"):
            runpy.run_module(module, run_name="__main__")
    else:
        runpy.run_module(module, run_name="__main__")
        assert "--" in capsys.readouterr().out
