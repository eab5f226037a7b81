"""Predictions in bulk: as many answers as rows, beside the columns of the user.

Covers: data/answer_tables.py.
"""

import json
import shutil

import numpy as np
import pandas
import pytest

from albert_tf import UserError, load_predictor, predict
from albert_tf.data import answer_tables
from albert_tf.data.tables import read_table
from albert_tf.export import export_model
from albert_tf.predict import PredictSettings
from tests.tasks.test_finetuning import evaluate_here

ROWS = [
    {"review": "anna saw bert .", "label": "mine", "id": "a/1"},
    {"review": 'she said "no"\nand,\tleft .', "label": "", "id": "007"},
    {"review": "", "label": "", "id": ""},
    {"review": "anna " * 60, "label": "x", "id": "NA"},
]


def write(path, rows) -> str:
    frame = pandas.DataFrame(rows)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False)
    return str(path)


def predicted(model, source, target, **options) -> pandas.DataFrame:
    predict.main(
        PredictSettings(
            model=str(model), input_file=str(source), output_file=str(target), **options
        )
    )
    return read_table(str(target), source=str(target), empty_rows=True)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_every_row_is_copied_with_its_answer(ending, finished, tmp_path):
    model = finished("tsv").folder
    source = write(tmp_path / f"in{ending}", ROWS)
    found = predicted(model, source, tmp_path / f"out{ending}", batch_size=1)
    assert found[["review", "label", "id"]].to_dict("records") == ROWS
    answers = load_predictor(model).predict([row["review"] for row in ROWS])
    assert found["predicted_label"].tolist() == [answer["label"] for answer in answers]
    shown = [float(value) for value in found["probability"]]
    assert shown == pytest.approx([answer["probability"] for answer in answers], abs=1e-6)


def test_the_index_of_a_data_frame_is_a_column_and_is_copied(finished, tmp_path):
    frame = pandas.DataFrame(ROWS).set_index("id")
    frame.to_parquet(tmp_path / "in.parquet")
    found = predicted(finished("tsv").folder, tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert found["id"].tolist() == [row["id"] for row in ROWS]


@pytest.mark.parametrize(
    ("name", "content", "number"),
    [
        ("in.csv", "review\ngood\n\nbad\n\n", 4),
        ("in.tsv", "review\ngood\n\nbad\n", 3),
        ("in.csv", "id,review\n1,good\n\n,\n2,bad\n\n", 4),
        ("in.jsonl", '{"review": "good"}\n\n{"review": "bad"}\n', 3),
        ("in.txt", "good\n\n{bad\n\n", 4),
    ],
)
def test_empty_lines_are_rows(name, content, number, finished, tmp_path):
    (tmp_path / name).write_text(content)
    found = predicted(finished("tsv").folder, tmp_path / name, tmp_path / "out.parquet")
    assert (
        len(found) == number and found["predicted_label" if "label" in content else "label"].all()
    )


def test_no_older_answers_stay_where_a_prediction_fails(finished, tmp_path, monkeypatch):
    target = tmp_path / "out.csv"
    source = write(tmp_path / "in.csv", ROWS)
    predicted(finished("tsv").folder, source, target)
    monkeypatch.setattr("albert_tf.tasks.predictor.Predictor.answered", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        predicted(finished("tsv").folder, source, target)
    assert not target.exists()


def test_wrong_rows_and_files_are_named(finished, tmp_path, capsys):
    model = finished("tsv").folder
    other = write(tmp_path / "in.csv", [{"comment": "good"}])
    with pytest.raises(
        UserError, match=r'in.csv: row 1 .line 2.: expected a text, or {"review": ...}; got {.c'
    ):
        predicted(model, other, tmp_path / "out.csv")
    found = predicted(model, other, tmp_path / "out.csv", text_columns="comment")
    assert list(found)[:2] == ["comment", "label"]
    for options in ({"output_file": "x.csv"}, {"input_file": other, "output_file": "x.xlsx"}):
        with pytest.raises(UserError):
            PredictSettings(model=str(model), **options)


@pytest.mark.parametrize("task", ["squad2.0", "race", "tagging", "labels", "stsb"])
def test_every_kind_of_model_answers_rows(task, finished, tmp_path):
    text = "anna saw bert ."
    rows = {
        "squad2.0": {"question": "anna ?", "context": text, "answer": "hers", "more": {"a": [1]}},
        "race": {"article": text, "question": "who _ ?", "options": ["a", "b", "c", "d"]},
        "tagging": {"tokens": ["anna", "saw"]},
        "labels": {"review": text},
        "stsb": {"text_a": text, "text_b": text},
    }
    empty = dict.fromkeys(rows[task])
    for ending in (".jsonl", ".csv"):
        if task == "tagging" and ending == ".csv":
            continue
        cells = {
            k: json.dumps(v) if isinstance(v, list) and ending == ".csv" else v
            for k, v in rows[task].items()
        }
        source = write(tmp_path / f"in{ending}", [cells, empty, cells])
        found = predicted(finished(task).folder, source, tmp_path / f"out{ending}")
        assert len(found) == 3 and len(found.columns) > len(cells)
    if task == "squad2.0":
        assert found["answer"].tolist() == ["hers", "", "hers"] and "predicted_answer" in found


def test_windows_read_long_texts_whole_in_an_export(finished, tmp_path):
    pytest.importorskip("onnxruntime")
    model = finished("tsv").folder
    texts = ["anna saw bert .", " ".join(["anna saw"] * 30 + ["dora was bad ."])]
    predictor = load_predictor(model)
    plain = [predictor.answered([predictor.check(text)])[0] for text in texts]
    predictor.read_in_windows(True)
    windows = predictor.predict(texts)
    assert plain[0] == windows[0] and plain[1] != windows[1]
    copy = shutil.copytree(model / "model", tmp_path / "model")
    config = json.loads((copy / "config.json").read_text())
    config["albert_tf"]["task"]["windows"] = True
    (copy / "config.json").write_text(json.dumps(config))
    onnx = load_predictor(export_model(str(copy), str(tmp_path / "onnx"), format="onnx"))
    for answer, expected in zip(onnx.predict(texts), windows, strict=True):
        assert answer["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-4)
    with pytest.raises(UserError, match="--windows is for models that classify one text"):
        load_predictor(finished("tagging").folder).read_in_windows(True)


def test_a_text_is_one_text_or_two_as_the_model_was_trained(finished):
    one, two = (load_predictor(finished(name).folder) for name in ("tsv", "stsb"))
    assert one.predict(["anna\tsaw"]) == one.predict(["anna saw"])
    assert one.expects == 'a text, or {"review": ...}'
    for predictor, item in (
        (one, {"text_a": "a", "text_b": "b"}),
        (two, "anna"),
        (two, {"text": "anna"}),
        (two, {"sentence1": "anna"}),
        (two, "a\tb\tc"),
    ):
        with pytest.raises(UserError, match="^expected "):
            predictor.check(item)
    assert len(two.predict([two.empty, {"sentence1": "a", "sentence2": ""}])) == 2


def test_every_line_has_an_answer_and_a_flag_says_what_it_is(finished, capsys):
    predictor = load_predictor(finished("tsv").folder)
    lines = ["good\n", "\n", "{bad\n", " \n"]
    assert len(list(predict.answers(predictor, lines, 3))) == 4
    assert "line 3: begins with a brace and is read as a text" in capsys.readouterr().err
    line = json.dumps({"review": "good", "label": "mine", "id": 7})
    answer, _ = predict.answers(predictor, [line, ""], 3, "json")
    assert answer["label"] == "mine" and answer["id"] == 7 and answer["predicted_label"]
    squad = load_predictor(finished("squad1.1").folder)
    assert [each["answer"] for each in predict.answers(squad, ["\n"], 3)] == [""]


def test_a_series_has_missing_texts(finished):
    predictor = load_predictor(finished("tsv").folder)
    with pytest.warns(UserWarning, match="1 of 2 texts are empty"):
        found = predictor.predict(pandas.Series(["good", None]))
        assert found == predictor.predict(["good", ""])


def test_a_lost_mask_is_an_error_and_a_cut_text_a_remark(tiny_pretrained):
    predictor = load_predictor(tiny_pretrained, max_seq_length=16)
    with pytest.raises(UserError, match=r"a \[MASK\] is not among the first 16 tokens of"):
        predictor.check("anna [MASK] saw " + "bert . " * 20 + "[MASK]")
    assert len(predictor.answered([predictor.check("[MASK] saw " + "bert . " * 20)])) == 1
    assert "cut at --max_seq_length=16" in predictor.remarks()[0]


# --- The programs of fine-tuning


def test_the_newest_predictions_are_in_one_place_with_the_rows_of_the_file(finished, tmp_path):
    run, folder = finished("tsv"), shutil.copytree(finished("tsv").folder, tmp_path / "run")
    flags = ["--do_train=false", "--do_eval=false", "--do_predict", f"--output_dir={folder}"]
    usual, other = folder / "predictions" / "predictions.tsv", tmp_path / "other.parquet"
    for rows in (ROWS[:2], ROWS):
        source = write(tmp_path / "new.csv", rows)
        evaluate_here(run.runner, f"--predict_file={source}", *flags)
        found = read_table(str(usual), source="", empty_rows=True)
        assert found["id"].tolist() == [row["id"] for row in rows]
    evaluate_here(run.runner, f"--predict_file={source}", f"--predictions_file={other}", *flags)
    same = predicted(folder, source, tmp_path / "out.parquet")
    wanted = pandas.read_parquet(other)
    assert wanted.columns.tolist() == same.columns.tolist()
    assert wanted["predicted_label"].tolist() == same["predicted_label"].tolist()
    np.testing.assert_allclose(wanted["probability"], same["probability"], atol=1e-5)


# --- Tables


@pytest.mark.parametrize("ending", answer_tables.ENDINGS)
def test_what_is_written_is_read_back_equal(ending, tmp_path):
    texts = ['a "q"', "x\ry", "", "l\n2\tt", "é,;"]
    frame = pandas.DataFrame({"text": texts, "n": range(5), "l": [["a"], [], None, ["b"], []]})
    answers = [{"text": "t", "labels": ["a"], "probabilities": {"a": 0.25}}] * 5
    path = tmp_path / f"x{ending}"
    path.write_bytes(answer_tables.answer_table(str(path), frame, answers))
    found = read_table(str(path), source="", empty_rows=True)
    if ending == ".tsv":
        texts = [" ".join(text.split()) if text else "" for text in texts]
    assert found["text"].tolist() == texts
    assert [int(value) for value in found["n"]] == list(range(5))
    assert found["predicted_text"].tolist() == ["t"] * 5


def test_names_of_answers_never_replace_those_of_the_user():
    taken = ["label", "predicted_label"]
    assert answer_tables.beside(["label", "score"], taken) == {
        "label": "predicted_predicted_label",
        "score": "score",
    }
    content = answer_tables.answer_table("x.jsonl", pandas.DataFrame({"a": [1]}), [{"a": 2.5}])
    assert json.loads(content) == {"a": 1, "predicted_a": 2.5}
