"""Engines: ONNX Runtime computes a model's folder without TensorFlow, with the answers of TensorFlow."""

import json

import pytest

from albert_tf import UserError, load_predictor, save_pretrained
from albert_tf.formats.weights import head_shapes
from albert_tf.model import heads
from albert_tf.serving import graph_engines, onnx_model
from albert_tf.tasks.compiled import Compiled
from tests.helpers import TINY, program_here
from tests.serving.conftest import CLASSES, CONFIG, LABELS, items_of
from tests.serving.test_onnx_model import assert_close, run_command

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_all_engines_give_the_same_answers(kind, engine, sources):
    pytest.importorskip(engine)
    answers = []
    for name in (engine, "tensorflow"):
        predictor = load_predictor(sources(kind), engine=name)
        answers.append(predictor.answered([predictor.check(item) for item in items_of(kind)]))
    assert_close(*answers)


def test_a_question_with_fewer_tokens_than_candidates_is_answered_by_all_engines(sources):
    items = [{"question": "", "context": ""}, {"question": "a", "context": ""}]
    answers = []
    for engine in ("onnxruntime", "tensorflow"):
        answers.append(load_predictor(sources("span_or_none"), engine=engine).predict(items))
        assert [answer["answer"] for answer in answers[-1]] == ["", ""]
    assert_close(*answers)


def test_the_engine_is_onnx_runtime_unless_another_is_named(sources):
    folder = sources("embedder")
    assert isinstance(load_predictor(folder).compute, onnx_model.OnnxModel)
    assert isinstance(load_predictor(folder, engine="tensorflow").compute, Compiled)


def test_a_folder_is_answered_without_tensorflow(sources):
    done, heavy = run_command("predict", sources("pairs"), text="anna\n")
    assert json.loads(done.stdout)["label"] in LABELS["pairs"]
    assert (heavy, done.returncode) == ("[]", 0)


def test_texts_are_scored_by_both_engines_alike(sources):
    texts = ["the cat sat on a mat", "a dog ran"]
    scores = [
        load_predictor(sources("pretrained"), engine=engine).score(texts)
        for engine in ("onnxruntime", "tensorflow")
    ]
    assert_close(*scores)


@pytest.mark.parametrize("name", sorted(heads.MODEL_CLASSES))
def test_the_shapes_of_a_head_are_those_of_the_model(name):
    config = TINY.with_labels(["yes", "no", "perhaps"], "mine")
    modules = [
        {"kind": "dense", "size": 11, "activation": "tanh"},
        {"kind": "layer_norm"},
        {"kind": "normalize"},
    ]
    config = config.replace(
        foreign={
            "sentence_embedding": {"pooling": "mean+cls", "modules": modules, "projection_size": 5}
        }
    )
    model = heads.MODEL_CLASSES[name](config)
    variables = model.named_variables()
    shapes = head_shapes(name, model.config)
    assert shapes == {
        key: tuple(variable.shape)
        for key, variable in variables.items()
        if not key.startswith("bert/")
    }


def test_what_onnx_runtime_cannot_compute_is_computed_in_tensorflow_or_named(
    spm, tokenizer, tmp_path
):
    config = CONFIG.replace(vocab_size=tokenizer.vocab_size).with_labels(["a", "b"], "mine")
    model = heads.AlbertForSequenceClassification(config, seed=3)
    pooler = [name for name in model.named_variables() if name.startswith("bert/pooler")]
    save_pretrained(model, tmp_path, untrained=pooler)
    assert isinstance(load_predictor(tmp_path, spm_model_file=spm).compute, Compiled)
    with pytest.raises(
        UserError, match="engine=onnxruntime: the model has no values for its pooler"
    ):
        load_predictor(tmp_path, spm_model_file=spm, engine="onnxruntime")
    with pytest.raises(
        UserError, match="engine must be one of auto, onnxruntime, openvino, tensorflow"
    ):
        load_predictor(tmp_path, spm_model_file=spm, engine="jax")


def test_an_export_is_not_computed_by_tensorflow(sources, tmp_path):
    program_here(
        "export", f"--model={sources('pairs')}", "--format=onnx", f"--output_dir={tmp_path}/onnx"
    )
    with pytest.raises(
        UserError, match="which TensorFlow does not compute; give the model's folder"
    ):
        load_predictor(tmp_path / "onnx", engine="tensorflow")


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_a_model_in_onnx_runtime_has_as_many_parameters_as_in_keras(kind, sources):
    ours = load_predictor(sources(kind), engine="onnxruntime").model.count_params()
    assert ours == load_predictor(sources(kind), engine="tensorflow").model.count_params()


@pytest.mark.parametrize(("cores", "expected"), [(3, 3), (8, 0)])
def test_onnx_runtime_has_no_more_threads_than_the_process_may_use(
    cores, expected, sources, monkeypatch
):
    started = []
    session_of = onnxruntime.InferenceSession

    def session(content, options, **others):
        started.append(options.intra_op_num_threads)
        return session_of(content, options, **others)

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    monkeypatch.setattr(graph_engines, "num_cores", lambda: cores)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    load_predictor(sources("embedder"), engine="onnxruntime").predict(["the cat"])
    assert started == [expected]  # 0: its own choice
