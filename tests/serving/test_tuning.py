"""albert-tf tune: the fastest form that is exact enough is exported, and computed as it was measured."""

import json
import warnings

import numpy as np
import pytest

from albert_tf import UserError, load_predictor
from albert_tf.formats import layouts
from albert_tf.formats.pretrained import weights_of
from albert_tf.model import heads
from albert_tf.serving import graph_engines, onnx_files, tuning
from albert_tf.serving.graph_engines import OnnxRuntime, OpenVino
from albert_tf.serving.onnx_model import OnnxModel
from tests.helpers import program_here
from tests.serving.conftest import CLASSES, CONFIG, features_of, items_of

pytest.importorskip("onnxruntime")

OPENVINO = {"name": "openvino", "precision": "float32", "group_size": 128}


def lines_of(kind: str) -> str:
    """A file of items as `albert-tf predict` reads them."""
    lines = []
    for item in items_of(kind):
        if kind in ("choices", "span", "span_or_none"):
            lines.append(json.dumps(item))
        elif isinstance(item, dict):
            lines.append("\t".join(item.values()))
        else:
            lines.append(item)
    return "".join(line + "\n" for line in lines if line.strip())


def tune(model: str, tmp_path, text: str, **flags: object) -> str:
    """The folder that the program writes."""
    (tmp_path / "texts.txt").write_text(text, encoding="utf-8")
    folder = str(tmp_path / "tuned")
    given = [f"--{name}={value}" for name, value in {"seconds": 1, **flags}.items()]
    program_here(
        "tune",
        f"--model={model}",
        f"--input_file={tmp_path}/texts.txt",
        f"--output_dir={folder}",
        *given,
    )
    return folder


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_every_kind_of_model_is_exported_as_it_was_measured(kind, sources, tmp_path, capsys):
    folder = tune(sources(kind), tmp_path, lines_of(kind), min_cosine=0.99)
    table = capsys.readouterr().out.splitlines()
    assert [line[0] for line in table[1:-1]].count("*") == 1
    assert {"float32, onnxruntime", "int8_rows, onnxruntime"} <= {
        line[2:].split("  ")[0] for line in table
    }

    tuned = load_predictor(folder)
    with open(f"{folder}/export.json", encoding="utf-8") as file:
        about = json.load(file)
    chosen = tuning.Form(about["quantization"], tuned.compute.engine)
    assert any(line.startswith(f"* {chosen.title()} ") for line in table)
    assert tuned.compute.tokens_of_batch == about["engine"]["tokens_of_batch"]
    examples = [tuned.check(item) for item in items_of(kind)]
    assert len(tuned.answered(examples)) == len(examples)


def form_of(quantization: str) -> tuning.Form:
    """The form that ONNX Runtime computes."""
    return next(
        form
        for form in tuning.FORMS
        if form.quantization == quantization and form.engine == OnnxRuntime()
    )


def measured(form: tuning.Form, seconds: float, cosine: float) -> tuning.Measured:
    return tuning.Measured(form, {}, None, np.array([cosine, cosine, 0.5]), None, [seconds])


def test_the_fastest_form_that_is_exact_enough_is_chosen():
    reference, rows, int8 = (form_of(name) for name in ("none", "int8_rows", "int8"))
    chooser = tuning.Tuning.__new__(tuning.Tuning)
    chooser.measured = [
        measured(reference, 3.0, 1.0),
        measured(int8, 1.0, 0.99),
        measured(rows, 2.0, 0.999),
    ]
    assert chooser.best(0.998).form is rows
    assert chooser.best(0.9).form is int8
    assert chooser.best(1.0).form is reference


def test_a_form_made_of_texts_is_judged_by_others():
    numbers = np.arange(9)
    parts = np.split(numbers, [4, 4, 5, 8])  # batches of 4, 0, 1, 3 and 1 texts
    batches = [{"input_ids": part[:, None], "segment_ids": part[:, None]} for part in parts]
    used = np.concatenate([batch["segment_ids"] for batch in tuning._every_second(batches)])
    others = tuning._of_others(numbers[:, None])
    assert sorted([*used[:, 0], *others[:, 0]]) == numbers.tolist()
    assert (len(used), len(others)) == (5, 4)
    alone = [{"input_ids": numbers[:1, None]}]
    assert len(tuning._every_second(alone)) == len(tuning._of_others(numbers[:1])) == 1


def test_all_numbers_of_tokens_are_measured_with_the_same_texts(sources, monkeypatch):
    predictor = load_predictor(sources("embedder"), engine="onnxruntime")
    examples = [predictor.check("the cat sat on a mat")] * 40
    weights = layouts.read_weights(sources("embedder"))
    tuned = tuning.Tuning(weights, predictor, examples, seconds=1.0)
    tuned.run()
    monkeypatch.setattr(tuning, "_ENOUGH_SECONDS", 0.0)  # as on a machine that is slow by now
    tuned.tokens_of_batch(tuned.best(1.0))
    assert tuned.num_texts == 40


def test_a_form_that_is_slower_than_float32_is_not_chosen():
    reference, int8 = (form_of(name) for name in ("none", "int8"))
    chooser = tuning.Tuning.__new__(tuning.Tuning)
    chooser.measured = [measured(reference, 3.0, 1.0), measured(int8, 3.5, 1.0)]
    assert chooser.best(0.0).form is reference


def written(sources, tmp_path, engine: object) -> str:
    """An export whose file says that an engine was chosen."""
    program_here(
        "export",
        f"--model={sources('embedder')}",
        "--format=onnx",
        "--quantization=int8_weights",
        f"--output_dir={tmp_path}/export",
    )
    path = tmp_path / "export/export.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps({**about, "engine": engine}))
    return str(tmp_path / "export")


def test_an_export_is_computed_by_the_chosen_engine_or_by_the_named_one(sources, tmp_path):
    pytest.importorskip("openvino")
    folder = written(sources, tmp_path, OPENVINO)
    chosen = load_predictor(folder)
    assert chosen.compute.engine == OpenVino("float32", 128)
    assert load_predictor(folder, engine="openvino").compute.engine == OpenVino("float32", 128)
    named = load_predictor(folder, engine="onnxruntime")
    assert named.compute.engine == OnnxRuntime()


def test_openvino_rounds_activations_only_where_it_is_asked_for(tokenizer):
    pytest.importorskip("openvino")
    config = CONFIG.replace(
        vocab_size=tokenizer.vocab_size,
        embedding_size=96,
        hidden_size=128,
        num_attention_heads=4,
        intermediate_size=256,
    )
    model = heads.AlbertForEmbedding(config, seed=5)
    contents = onnx_files.convert(weights_of(model), (), "int8_weights")
    features = features_of(model, 3, 5, 17)
    exact, plain, rounded = (
        OnnxModel(contents, config, "AlbertForEmbedding", engine)(features)["embedding"]
        for engine in (OnnxRuntime(), OpenVino(), OpenVino(group_size=32))
    )
    np.testing.assert_allclose(plain, exact, atol=1e-5)
    assert np.abs(rounded - exact).max() > 1e-3
    np.testing.assert_allclose(rounded, exact, atol=0.1)


def test_without_the_package_of_the_engine_onnx_runtime_computes_with_a_warning(
    sources, tmp_path, monkeypatch
):
    folder = written(sources, tmp_path, OPENVINO)
    monkeypatch.setattr(graph_engines, "is_installed", lambda name: name != "openvino")
    with pytest.warns(UserWarning, match="export.json was tuned for openvino: ONNX Runtime"):
        predictor = load_predictor(folder)
    assert predictor.compute.engine == OnnxRuntime()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_predictor(folder, engine="onnxruntime")


@pytest.mark.parametrize(
    "engine",
    [
        {"name": "abacus"},
        {**OPENVINO, "precision": "float16"},
        {**OPENVINO, "group_size": -1},
        {**OPENVINO, "group_size": "128"},
        "openvino",
        {**OPENVINO, "tokens_of_batch": 0},
    ],
    ids=str,
)
def test_a_damaged_choice_is_one_line(engine, sources, tmp_path):
    folder = written(sources, tmp_path, engine)
    with pytest.raises(UserError, match="export.json: .*expected"):
        load_predictor(folder)


def test_texts_are_named_by_their_lines(sources, tmp_path):
    with pytest.raises(UserError, match="contains no texts"):
        tune(sources("embedder"), tmp_path, "\n\n")
    with pytest.raises(UserError, match="texts.txt: line 3: "):
        tune(sources("span"), tmp_path, '\n{"question": "a", "context": "a b"}\n{"question": 1}\n')
    with pytest.raises(UserError, match="--text_columns: needs a table|text_columns needs a table"):
        tune(sources("embedder"), tmp_path, "a\n", text_columns="a")


def test_the_batches_have_the_tokens_that_the_export_names(sources, tmp_path):
    folder = written(sources, tmp_path, {"name": "onnxruntime", "tokens_of_batch": 7})
    predictor = load_predictor(folder)
    assert isinstance(predictor.compute, OnnxModel)
    seen = []
    compute = predictor.compute
    every = compute.every
    compute.every = lambda batches: every([lambda b=b: seen.append(b()) or b() for b in batches])
    predictor.embed(["the cat", "a dog", "a cat sat on a mat"])
    assert all(
        features["input_ids"].size <= 7 or len(features["input_ids"]) == 1 for features in seen
    )
    assert len(seen) > 1


def test_an_export_on_a_remote_path_must_be_copied_first(sources, tmp_path):
    folder = written(sources, tmp_path, {"name": "onnxruntime", "tokens_of_batch": 7})
    with pytest.raises(UserError, match="file://.*: expected a local path.*; copy the folder"):
        load_predictor(f"file://{folder}").embed(["the cat"])
