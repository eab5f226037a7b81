"""Answers of finished models: those of the runners, and line by line."""

import io
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pandas
import pytest

from albert_tf import UserError, load_pretrained, predict, save_pretrained, score
from albert_tf.export import export_model
from albert_tf.predict import PredictSettings
from albert_tf.serving import predictors
from albert_tf.tasks.tagging import entities
from albert_tf.text.masked_text import encode_masked
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.user_files import answer_tables
from albert_tf.user_files.table_files import read_table
from tests.helpers import ROOT, TINY, WORDS, fine_tune_here, train_spm
from tests.tasks.test_finetuning import evaluate_here


def answers_to(folder, items, **settings) -> list[dict]:
    predictor = predictors.load_predictor(str(folder), **settings)
    is_text = isinstance(items[0], str)
    lines = items if is_text else list(map(json.dumps, items))
    format = "text" if is_text else "json"
    return list(predict.answers(predictor, lines, lines_at_a_time=4, input_format=format))


def rows_of(path) -> list[dict[str, str]]:
    header, *lines = path.read_text().splitlines()
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


def test_labels_are_the_runners(finished, task_files):
    run = finished("tsv")
    items = [
        {"text_a": row["review"], "name": row["name"]}
        for row in rows_of(task_files / "tsv" / "test.tsv")
    ]
    expected = rows_of(run.folder / "predictions" / "predictions.tsv")
    for answer, row in zip(answers_to(run.folder, items, batch_size=3), expected, strict=True):
        assert answer["name"].startswith("test-") and answer["label"] == row["label"]
        for label, probability in answer["probabilities"].items():
            assert probability == pytest.approx(float(row[f"probability_{label}"]), abs=6e-5)


def test_the_rows_of_a_table_in_memory_are_items(finished, task_files):
    rows = rows_of(task_files / "tsv" / "test.tsv")
    predictor = predictors.load_predictor(finished("tsv").folder)
    expected = predictor.predict([row["review"] for row in rows])
    assert predictor.predict(pandas.DataFrame(rows)) == expected == predictor.predict(rows)
    missing = pandas.DataFrame([*rows[:2], {"review": None}, {"review": float("nan")}])
    texts = [*(row["review"] for row in rows[:2]), "", ""]
    assert predictor.predict(missing) == predictor.predict(texts)
    assert predictor.predict(missing["review"]) == predictor.predict(texts)
    # Only the column of the training counts; pandas writes the index under an empty name.
    more = [{**row, "text": "other", "text_b": "more", "": str(n)} for n, row in enumerate(rows)]
    assert predictor.predict(more) == expected
    with pytest.raises(UserError, match="has no masked-LM head"):
        predictor.score(["a"])


def test_answers_in_windows_are_the_runners(task_flags, tmp_path, capsys):
    runner, flags = task_flags["labels"]
    flags = [*flags, "--windows", "--max_seq_length=8", f"--output_dir={tmp_path / 'run'}"]
    results = fine_tune_here(runner, *flags, "--num_train_steps=2", "--do_predict")
    assert "read in windows of --max_seq_length=8" in capsys.readouterr().out
    path = next(flag for flag in flags if flag.startswith("--predict_file=")).partition("=")[2]
    texts = [row["review"] for row in rows_of(pathlib.Path(path))]
    expected = rows_of(tmp_path / "run" / "predictions" / "predictions.tsv")
    predictor = predictors.load_predictor(tmp_path / "run" / "model")
    answers = predictor.predict(texts)
    for answer, row in zip(answers, expected, strict=True):
        for label, probability in answer["probabilities"].items():
            assert probability == pytest.approx(float(row[f"probability_{label}"]), abs=6e-5)
    assert min(results["eval"].values()) >= 0
    assert not predictor.remarks()
    with pytest.raises(UserError, match="expected a text, or {"):
        predictor.predict([{"text_a": "a", "text_b": "b"}])
    with pytest.raises(UserError, match="--windows"):
        export_model(str(tmp_path / "run" / "model"), str(tmp_path / "export"))


def test_several_labels_are_the_runners(finished, task_files):
    run = finished("labels")
    items = (task_files / "labels" / "test.tsv").read_text().splitlines()[1:]
    expected = rows_of(run.folder / "predictions" / "predictions.tsv")
    found = answers_to(run.folder, items, batch_size=3)
    for answer, row in zip(found, expected, strict=True):
        assert answer["labels"] == json.loads(row["labels"])
        assert list(answer["probabilities"]) == ["animal", "colour", "mood", "name"]
        for label, probability in answer["probabilities"].items():
            assert probability == pytest.approx(float(row[f"probability_{label}"]), abs=6e-5)
    assert {row["labels"] for row in expected} - {"[]", '["animal", "colour", "mood", "name"]'}


def test_scores_are_the_runners(finished, task_files):
    run = finished("stsb")
    lines = (task_files / "glue" / "STS-B" / "test.tsv").read_text().splitlines()[1:]
    pairs = ["\t".join(line.split("\t")[-2:]) for line in lines]
    expected = [float(row["score"]) for row in rows_of(run.folder / "predictions/predictions.tsv")]
    found = [answer["score"] for answer in answers_to(run.folder / "model", pairs)]
    np.testing.assert_allclose(found, expected, atol=6e-5)


def test_choices_are_the_runners(finished, task_files):
    run = finished("race")
    expected = {row["id"]: row for row in rows_of(run.folder / "predictions/predictions.tsv")}
    items = []
    for path in sorted((task_files / "RACE" / "test").rglob("*.txt")):
        passage = json.loads(path.read_text())
        for number, question in enumerate(passage["questions"]):
            id = f"{path.parent.name}/{path.name}/{number}"
            options = passage["options"][number]
            items.append(
                {"id": id, "article": passage["article"], "question": question, "options": options}
            )
    assert len(items) == len(expected)
    for item, answer in zip(items, answers_to(run.folder, items), strict=True):
        row = expected[item["id"]]
        assert answer["answer"] == row["answer"]
        assert answer["option"] == item["options"]["ABCD".index(answer["answer"])]
        assert answer["probability"] == pytest.approx(float(row["probability"]), abs=6e-5)


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_spans_are_the_runners(version, finished, task_files):
    run = finished(f"squad{version}")
    (article,) = json.loads((task_files / "squad" / "questions.json").read_text())["data"]
    items = [
        {"id": question["id"], "question": question["question"], "context": paragraph["context"]}
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    best = json.loads((run.folder / "predictions" / "nbest_predictions.json").read_text())
    expected = json.loads((run.folder / "predictions" / "predictions.json").read_text())
    for item, answer in zip(items, answers_to(run.folder, items), strict=True):
        id = answer["id"]
        assert answer["answer"] == expected[id]
        assert answer["answer"] == item["context"][answer["start"] : answer["end"]]
        probability = best[id][0]["probability"]
        if version == "2.0":
            odds = json.loads((run.folder / "predictions" / "null_odds.json").read_text())[id]
            assert answer["null_odds"] == pytest.approx(odds, abs=1e-5)
            if not answer["answer"]:
                probability = 1 / (1 + math.exp(-odds))
        assert answer["probability"] == pytest.approx(probability, abs=1e-5)


@pytest.mark.parametrize("articles_only", [False, True])
def test_an_official_file_of_questions_is_a_table_of_them(
    articles_only, finished, task_files, tmp_path
):
    run = finished("squad2.0")
    source = task_files / "squad" / "questions.json"
    if articles_only:
        articles = json.loads(source.read_text())["data"]
        source = tmp_path / "articles.json"
        source.write_text(json.dumps(articles))
    found = predicted(run.folder, source, tmp_path / "out.parquet")
    expected = json.loads((run.folder / "predictions" / "predictions.json").read_text())
    assert dict(zip(found["id"], found["answer"], strict=True)) == expected


def test_a_checkpoint_is_used_with_the_settings_of_its_run(finished):
    folder = finished("squad2.0").folder
    (checkpoint,) = folder.glob("checkpoints/step-*.index")
    task = predictors.load_predictor(str(checkpoint)).task_settings
    expected = {"max_seq_length": 40, "doc_stride": 13, "max_query_length": 9}
    assert {**expected, "max_answer_length": 6}.items() <= task.items()


def test_a_short_sequence_keeps_place_for_the_context(finished):
    predictor = predictors.load_predictor(finished("squad2.0").folder, max_seq_length=12)
    assert predictor.task_settings["max_query_length"] == 4  # of 9 that 3 special tokens leave
    with pytest.warns(UserWarning, match="cut at --max_query_length=4"):
        [answer] = predictor.predict([{"question": "who " * 9, "context": "anna saw bert ."}])
    assert answer.keys() >= {"answer", "probability"}


def test_predict_warns_once_of_texts_that_are_cut_or_empty(finished):
    predictor = predictors.load_predictor(finished("tsv").folder, max_seq_length=34)
    assert len(predictor.predict(["anna saw bert ."])) == 1  # pytest would raise a warning
    expected = "1 of 3 texts are empty; 3 texts, 1 of them .33 %. cut at --max_seq_length=34; "
    with pytest.warns(UserWarning, match=expected) as caught:
        answers = predictor.predict(["anna " * 40, " "])
    assert len(answers) == 2 and len(caught) == 1 and caught[0].filename == __file__
    predictor.predict(["anna " * 40])
    for missing in (None, math.nan, {"review": None}):
        assert predictor.predict(["anna", missing])[1]["label"] == answers[1]["label"]


def test_entities_are_the_runners(finished, task_files):
    run = finished("tagging")
    blocks = (run.folder / "predictions" / "predictions.conll").read_text().strip().split("\n\n")
    rows = [[line.split("\t") for line in block.splitlines()] for block in blocks]
    items = [{"tokens": [word for word, _ in sentence], "id": 7} for sentence in rows]
    for sentence, answer in zip(rows, answers_to(run.folder, items), strict=True):
        tags = [tag for _, tag in sentence]
        assert answer["tags"] == tags and answer["id"] == 7
        text = " ".join(word for word, _ in sentence)
        found = [(e["label"], e["start"], e["end"]) for e in answer["entities"]]
        starts = np.cumsum([0, *(len(word) + 1 for word, _ in sentence)])
        assert found == [
            (type, starts[first], starts[last + 1] - 1)
            for type, first, last in entities.entities_of(tags)
        ]
        assert [text[start:end] for _, start, end in found] == [
            e["text"] for e in answer["entities"]
        ]
        # The same words as plain text; in other white space the characters differ.
        (plain,) = answers_to(run.folder, [f"  {text}"])
        assert [(e["label"], e["start"] - 2, e["end"] - 2) for e in plain["entities"]] == found
    assert any(answer["entities"] for answer in answers_to(run.folder, items))
    predictor = predictors.load_predictor(str(run.folder))
    assert answers_to(run.folder, [{"tokens": []}]) == [{"entities": [], "tags": []}]
    for wrong in ({"tokens": ["a", ""]}, {"tokens": "a"}, {"text": 1}, {}):
        with pytest.raises(UserError, match='expected a text, or {"tokens": '):
            predictor.check(wrong)


def test_masks_are_filled_from_the_masked_lm_head(tiny_pretrained):
    (answer,) = answers_to(tiny_pretrained, ["anna [MASK] met carl [MASK] ."])
    tokenizer = Tokenizer.from_file(str(tiny_pretrained / "spiece.model"))
    words = tokenizer.encode("anna met carl .")
    assert len(words) == 4 and tokenizer.unk_id not in words
    ids = [2, words[0], 4, *words[1:3], 4, words[3], 3]
    outputs = load_pretrained(tiny_pretrained)(
        {"input_ids": np.array([ids]), "masked_lm_positions": np.array([[2, 5]])}
    )
    for row, candidates in zip(
        outputs["masked_lm_logits"][0].numpy(), answer["masks"], strict=True
    ):
        best = [tokenizer.token_to_id(entry["token"]) for entry in candidates]
        assert best == np.argsort(-row, kind="stable")[:5].tolist()
        odds = np.log(candidates[0]["probability"] / candidates[1]["probability"])
        assert odds == pytest.approx(row[best[0]] - row[best[1]], abs=1e-4)
    first, second = (masks[0]["token"].removeprefix("▁") for masks in answer["masks"])
    assert answer["text"].split() == f"anna {first} met carl {second} .".split()


def independent_log_likelihood(model, ids: list[int], mask_id: int) -> float:
    """The sum of the log probabilities of ids without [CLS] and [SEP], one sequence at a time, with NumPy's head."""
    weights = {name: value.numpy() for name, value in model.named_variables().items()}
    table = weights["bert/embeddings/word_embeddings"].astype(np.float64)
    head = {name: weights[f"cls/predictions/{name}"] for name in HEAD}
    total = 0.0
    for position in range(1, len(ids) - 1):
        masked = [*ids[:position], mask_id, *ids[position + 1 :]]
        hidden = model.encoder({"input_ids": [masked]})["sequence_output"].numpy()[0, position]
        inner = hidden.astype(np.float64) @ head[HEAD[0]] + head[HEAD[1]]
        inner *= 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        inner = (inner - inner.mean()) / np.sqrt(inner.var() + model.config.layer_norm_eps)
        logits = table @ (inner * head[HEAD[2]] + head[HEAD[3]]) + head[HEAD[4]]
        total += logits[ids[position]] - np.log(np.exp(logits).sum())
    return total


HEAD = [f"transform/{name}" for name in ("dense/kernel", "dense/bias")]
HEAD += ["transform/LayerNorm/gamma", "transform/LayerNorm/beta", "output_bias"]


def test_scores_are_those_of_an_independent_implementation(tiny_pretrained):
    predictor = predictors.load_predictor(tiny_pretrained, batch_size=7, engine="tensorflow")
    tokenizer = predictor.tokenizer
    texts = ["anna saw bert .", "carl", "the old tree was bad . anna met dora there .", "anna"]
    for text, answer in zip(texts, predictor.score(iter(texts)), strict=True):
        ids = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
        expected = independent_log_likelihood(predictor.model, ids, tokenizer.mask_id)
        assert answer["log_likelihood"] == pytest.approx(expected, rel=1e-5)
        assert answer["tokens"] == len(ids) - 2
        assert answer["perplexity"] == pytest.approx(math.exp(-expected / (len(ids) - 2)), rel=1e-5)
    for wrong in ("", "a\tb", "anna " * 99, 5):
        with pytest.raises(UserError):
            predictor.score([texts[0], wrong])


def test_the_command_scores_lines(tiny_pretrained, monkeypatch, capsys):
    lines = b'{"text": "anna saw bert ."}\n\n{"text": "carl", "id": 7}\n"a\\tb"\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    settings = predict.AnswerSettings(model=str(tiny_pretrained), input_format="json")
    with pytest.raises(UserError, match="line 4: a text to score has 1 to"):
        score.main(settings)
    first, empty, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["log_likelihood"] < 0 and second["id"] == 7 and second["tokens"] >= 1
    assert empty == {"log_likelihood": 0.0, "tokens": 0, "perplexity": None}

    # Texts without tokens have an answer, too.
    lines = b'{"text": "", "id": 1}\n{"text": null, "id": 2}\n{"text": "carl", "id": 3}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    score.main(settings)
    answers = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert answers[:2] == [{"id": id, **empty} for id in (1, 2)]
    assert answers[2]["log_likelihood"] == second["log_likelihood"]


def test_kinds_of_lines_may_be_mixed_and_padding_changes_nothing(tiny_pretrained):
    lines = [
        "anna saw a cat .",
        "anna [MASK] .",
        "bert met carl .\tthen dora left .",
        f"{WORDS} {WORDS}",
    ]
    mixed = answers_to(tiny_pretrained, lines)
    assert [sorted(answer) for answer in mixed] == [
        ["embedding"],
        ["masks", "text"],
        ["in_order"],
        ["embedding"],
    ]
    alone = [answers_to(tiny_pretrained, [line], batch_size=1)[0] for line in lines]
    assert len(mixed[0]["embedding"]) == TINY.hidden_size
    for index in (0, 3):
        np.testing.assert_allclose(mixed[index]["embedding"], alone[index]["embedding"], atol=1e-5)
    assert mixed[2]["in_order"] == pytest.approx(alone[2]["in_order"], abs=1e-5)
    assert mixed[0]["embedding"] != mixed[3]["embedding"]


@pytest.fixture(scope="module")
def unigram(tmp_path_factory) -> Tokenizer:
    texts = ["a cat is unable to stay enable the cable.", "cable cats, stable."] * 9
    path = tmp_path_factory.mktemp("unigram") / "spm.model"
    train_spm(path, texts, vocab_size=40, hard_vocab_limit=False)
    return Tokenizer.from_file(str(path))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a [MASK] cat", ["a ", None, " cat"]),
        ("a [MASK].", ["a ", None, "."]),
        ("[MASK][MASK] ,", [None, None, " ,"]),
        ("un[MASK]", ["un", None]),
        ("[MASK]\u3000a", [None, " a"]),
    ],
)
def test_a_part_behind_a_mask_goes_on_within_the_word_without_space(unigram, text, parts):
    pieces = list(map(unigram.id_to_token, encode_masked(unigram, text)))
    expected = []
    for part in parts:
        if part is None:
            expected.append("[MASK]")
        else:
            found = list(map(unigram.id_to_token, unigram.encode(part)))
            is_glued = bool(expected) and not part.startswith(" ")
            expected += [piece for piece in found if piece != "▁"] if is_glued else found
    assert pieces == expected


def test_a_wrong_line_is_named_after_the_answers_before_it(finished):
    predictor = predictors.load_predictor(finished("tsv").folder)
    lines = ['"anna saw bert ."', '{"text": "carl"}', "", '{"text_a": "a", "text_b": "b"}']
    found = predict.answers(predictor, lines, lines_at_a_time=2, input_format="json")
    assert all(next(found)["label"] for _ in range(3))
    with pytest.raises(UserError, match='^line 4: expected a text, or {"review": ...}; got {'):
        next(found)


def test_a_line_that_is_no_text_is_rejected(tiny_pretrained):
    predictor = predictors.load_predictor(str(tiny_pretrained))
    lines = ["{not json", '{"text": 7}', "na\udcffve", '{"text": "\\ud800"}']
    for line in (*lines, '{"text": ' + "[" * 9**6):
        with pytest.raises(UserError, match="^line 1: ") as error:
            list(predict.answers(predictor, [line], lines_at_a_time=1, input_format="json"))
        assert "\n" not in str(error.value)


def test_what_is_no_text_is_named(tiny_pretrained):
    predictor = predictors.load_predictor(tiny_pretrained)
    for item in (b"anna", 3.0, {"text": b"anna"}):
        with pytest.raises(UserError, match=r"^item 2: expected a text with \[MASK\] to fill"):
            predictor.predict(["anna", item])
    with pytest.raises(UserError, match="predict expects a list of items, .*; got 'anna'"):
        predictor.predict("anna")
    assert predictor.predict([]) == []


def test_all_lengths_and_batches_have_one_graph(tiny_pretrained):
    predictor = predictors.load_predictor(tiny_pretrained, batch_size=4, engine="tensorflow")
    texts = [" ".join(["anna"] * num_tokens) for num_tokens in (3, 20, 61, 70, 9)]
    alone = [predictor.predict([text])[0]["embedding"] for text in texts]
    together = [answer["embedding"] for answer in predictor.predict(texts)]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert predictor.compute.in_graph.experimental_get_tracing_count() == 1


@pytest.mark.parametrize(("format", "do_lower_case"), [("hf", True), ("tf1", False)])
def test_a_model_folder_gives_its_tokenizer(format, do_lower_case, tiny_pretrained, tmp_path):
    vocabulary = tiny_pretrained / "spiece.model"
    model = load_pretrained(tiny_pretrained)
    save_pretrained(model, tmp_path, format, vocabulary, do_lower_case=do_lower_case)
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    assert tokenizer.content == vocabulary.read_bytes()
    assert tokenizer.do_lower_case == do_lower_case
    chosen = Tokenizer.from_pretrained(tmp_path, do_lower_case=not do_lower_case)
    assert chosen.do_lower_case != do_lower_case


@pytest.mark.slow
def test_the_command_answers_standard_input_in_utf8(tiny_pretrained):
    given = (
        b"\xef\xbb\xbf"
        + b'{"text": "anna [MASK]", "id": "\xc3\xa9"}\n"bert met carl .\\tdora left ."\n'
    )
    command = [sys.executable, "-m", "albert_tf.command", "predict", str(tiny_pretrained)]
    process = subprocess.run(
        [*command, "--input_format=json"],
        input=given + b"na\xefve\n",
        capture_output=True,
        cwd=ROOT,
        timeout=300,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    first, second = map(json.loads, process.stdout.decode().splitlines())
    assert first["id"] == "é" and {"masks", "text"} < first.keys() and [*second] == ["in_order"]
    assert process.stderr.decode() == "albert-tf predict: line 3: not UTF-8\n"
    assert process.returncode == 1


ROWS = [
    {"review": "anna saw bert .", "label": "mine", "id": "a/1"},
    {"review": 'she said "no"\nand,\tleft .', "label": "", "id": "007"},
    {"review": "", "label": "", "id": ""},
    {"review": "anna " * 60, "label": "x", "id": "NA"},
]


def write(path, rows) -> str:
    frame = pandas.DataFrame(rows)
    if path.suffix == ".parquet":
        frame.set_index("id").to_parquet(path)  # the index is a column of the file
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False)
    return str(path)


def predicted(model, source, target, **options) -> pandas.DataFrame:
    paths = {"model": str(model), "input_file": str(source), "output_file": str(target)}
    predict.main(PredictSettings(**paths, **options))
    return read_table(str(target), source=str(target), empty_rows=True)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_every_row_is_copied_with_its_answer(ending, finished, tmp_path):
    model = finished("tsv").folder
    source = write(tmp_path / f"in{ending}", ROWS)
    found = predicted(model, source, tmp_path / f"out{ending}", batch_size=1)
    assert found[["review", "label", "id"]].to_dict("records") == ROWS
    answers = predictors.load_predictor(model).predict([row["review"] for row in ROWS])
    assert found["predicted_label"].tolist() == [answer["label"] for answer in answers]
    shown = [float(value) for value in found["probability"]]
    assert shown == pytest.approx([answer["probability"] for answer in answers], abs=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "number"),
    [
        ("in.csv", "review\ngood\n\nbad\n\n", 4),
        ("in.tsv", "review\ngood\n\nbad\n", 3),
        ("in.csv", "id,review\n1,good\n\n,\n2,bad\n\n", 4),
        ("in.jsonl", '{"review": "good"}\n\n{"review": "bad"}\n', 3),
    ],
)
def test_empty_lines_are_rows(name, content, number, tmp_path):
    (tmp_path / name).write_text(content)
    assert len(predict.read_rows(str(tmp_path / name))) == number


def test_no_older_answers_stay_where_a_prediction_fails(finished, tmp_path, monkeypatch):
    target = tmp_path / "out.csv"
    source = write(tmp_path / "in.csv", ROWS)
    target.write_text("old")
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
    ending = ".jsonl" if task == "tagging" else ".csv"
    cells = {
        k: str(v) if isinstance(v, list) and ending == ".csv" else v  # as pandas writes lists
        for k, v in rows[task].items()
    }
    source = write(tmp_path / f"in{ending}", [cells, empty, cells])
    found = predicted(finished(task).folder, source, tmp_path / f"out{ending}")
    assert len(found) == 3 and len(found.columns) > len(cells)
    if task == "squad2.0":
        assert found["answer"].tolist() == ["hers", "", "hers"] and "predicted_answer" in found


def test_only_the_keys_that_a_model_reads_are_converted_and_dropped(finished, tmp_path):
    model = finished("tsv").folder
    more = {"question": "q1", "options": "[none]", "id": 1}
    (answer,) = answers_to(model, [{"text": "anna", **more}])
    assert {*answer} == {*more, "label", "probability", "probabilities"}
    source = write(tmp_path / "in.csv", [{"review": "anna", **more}])
    assert predicted(model, source, tmp_path / "out.csv")["options"].tolist() == ["[none]"]
    source = write(tmp_path / "in.csv", [{"tokens": "[]"}, {"tokens": "['anna']"}])
    found = predicted(finished("tagging").folder, source, tmp_path / "out.jsonl")
    assert found["tags"].map(len).tolist() == [0, 1]


def test_windows_read_long_texts_whole_in_an_export(finished, tmp_path):
    pytest.importorskip("onnxruntime")
    model = finished("tsv").folder
    texts = ["anna saw bert .", " ".join(["anna saw"] * 30 + ["dora was bad ."])]
    predictor = predictors.load_predictor(model)
    plain = [predictor.predict([text])[0] for text in texts]
    predictor.read_in_windows(True)
    windows = [predictor.predict([text])[0] for text in texts]  # larger batches round otherwise
    assert plain[0] == windows[0] and plain[1] != windows[1]
    copy = shutil.copytree(model / "model", tmp_path / "model")
    config = json.loads((copy / "config.json").read_text())
    config["albert_tf"]["task"]["windows"] = True
    (copy / "config.json").write_text(json.dumps(config))
    onnx = predictors.load_predictor(export_model(str(copy), str(tmp_path / "onnx"), format="onnx"))
    for answer, expected in zip(onnx.predict(texts), windows, strict=True):
        assert answer["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-4)
    with pytest.raises(UserError, match="--windows is for models that classify one text"):
        predictors.load_predictor(finished("tagging").folder).read_in_windows(True)


def test_a_text_is_one_text_or_two_as_the_model_was_trained(finished):
    of_one_text, of_two_texts = (
        predictors.load_predictor(finished(name).folder) for name in ("tsv", "stsb")
    )
    assert of_one_text.predict(["anna\tsaw"]) == of_one_text.predict(["anna saw"])
    assert of_one_text.expects == 'a text, or {"review": ...}'
    for predictor, item in (
        (of_one_text, {"text_a": "a", "text_b": "b"}),
        (of_two_texts, "anna"),
        (of_two_texts, {"text": "anna"}),
        (of_two_texts, {"sentence1": "anna"}),
        (of_two_texts, "a\tb\tc"),
    ):
        with pytest.raises(UserError, match="^expected "):
            predictor.check(item)
    assert len(of_two_texts.predict([of_two_texts.empty, {"sentence1": "a", "sentence2": ""}])) == 2


def test_every_line_has_an_answer_and_a_flag_says_what_it_is(finished):
    predictor = predictors.load_predictor(finished("tsv").folder)
    lines = ["good\n", "\n", "{bad\n", " \n"]
    assert len(list(predict.answers(predictor, lines, 3))) == 4
    line = json.dumps({"review": "good", "label": "mine", "id": 7})
    answer, _ = predict.answers(predictor, [line, ""], 3, "json")
    assert answer["label"] == "mine" and answer["id"] == 7 and answer["predicted_label"]
    squad = predictors.load_predictor(finished("squad1.1").folder)
    assert [each["answer"] for each in predict.answers(squad, ["\n"], 3)] == [""]


def test_a_lost_mask_is_an_error_and_a_cut_text_a_remark(tiny_pretrained):
    predictor = predictors.load_predictor(tiny_pretrained, max_seq_length=16)
    with pytest.raises(UserError, match=r"a \[MASK\] is not among the first 16 tokens of"):
        predictor.check("anna [MASK] saw " + "bert . " * 20 + "[MASK]")
    assert len(predictor.answered([predictor.check("[MASK] saw " + "bert . " * 20)])) == 1
    assert "cut at --max_seq_length=16" in predictor.remarks()[0]


def test_the_newest_predictions_are_in_one_place_with_the_rows_of_the_file(finished, tmp_path):
    run = finished("tsv")
    folder = shutil.copytree(finished("tsv").folder, tmp_path / "run")
    flags = ["--do_train=false", "--do_eval=false", "--do_predict", f"--output_dir={folder}"]
    usual = folder / "predictions" / "predictions.tsv"
    other = tmp_path / "other.parquet"
    source = write(tmp_path / "new.csv", ROWS)
    evaluate_here(run.runner, f"--predict_file={source}", *flags)
    found = read_table(str(usual), source="", empty_rows=True)
    assert found["id"].tolist() == [row["id"] for row in ROWS]
    evaluate_here(run.runner, f"--predict_file={source}", f"--predictions_file={other}", *flags)
    same = predicted(folder, source, tmp_path / "out.parquet")
    at_other_place = pandas.read_parquet(other)
    assert at_other_place.columns.tolist() == same.columns.tolist()
    assert at_other_place["predicted_label"].tolist() == same["predicted_label"].tolist()
    np.testing.assert_allclose(at_other_place["probability"], same["probability"], atol=1e-5)


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


@pytest.mark.parametrize("ending", answer_tables.ENDINGS)
def test_columns_without_names_and_large_numbers_are_written(ending, tmp_path):
    large = 2**60 + 1
    frame = pandas.DataFrame([["a", "", "", large], ["b", "", "", np.nan]], dtype=object)
    path = tmp_path / f"x{ending}"
    named = frame.set_axis(["text", "", "", "n"], axis=1)
    path.write_bytes(answer_tables.answer_table(str(path), named, [{"label": "x"}] * 2))
    found = read_table(str(path), source="")
    assert list(found) == ["text", "Unnamed: 1", "Unnamed: 2", "n", "label"]
    assert str(found["n"].iloc[0]) == str(large)
    assert found["n"].iloc[1] is None or found["n"].iloc[1] == ""


def test_columns_that_parquet_cannot_store_are_json_and_missing_values_stay_missing(tmp_path):
    values = {
        "larger than int64": [10**30, None, 7],
        "several types": [True, None, "a"],
        "no keys": [{}, None, {}],
        "no keys inside": [[{"a": {}}], None, []],
        "objects": [{"a": 1}, None, {"a": 2}],
    }
    frame = pandas.DataFrame({"text": ["x", "y", "z"], **values}, dtype=object)
    path = tmp_path / "x.parquet"
    path.write_bytes(answer_tables.answer_table(str(path), frame, [{"label": "l"}] * 3))
    found = pandas.read_parquet(path)
    assert found["label"].tolist() == ["l"] * 3
    assert found.pop("objects").tolist() == values.pop("objects")
    for name, column in values.items():
        assert found[name].isna().tolist() == [False, True, False]
        written = [json.loads(value) for value in found[name].dropna()]
        assert written == [value for value in column if value is not None]


def test_names_of_answers_never_replace_those_of_the_user():
    taken = ["label", "predicted_label"]
    assert answer_tables.free_columns(["label", "score"], taken) == {
        "label": "predicted_predicted_label",
        "score": "score",
    }
    content = answer_tables.answer_table("x.jsonl", pandas.DataFrame({"a": [1]}), [{"a": 2.5}])
    assert json.loads(content) == {"a": 1, "predicted_a": 2.5}


def test_an_empty_context_has_no_answer(finished):
    predictor = predictors.load_predictor(finished("squad1.1").folder)
    (answer,) = predictor.predict([{"question": "Who?", "context": ""}])
    assert answer == {"answer": "", "probability": 0.0, "start": 0, "end": 0}


def test_a_line_keeps_the_values_that_the_model_does_not_read(tiny_pretrained):
    predictor = predictors.load_predictor(tiny_pretrained)
    lines = ['{"text": "anna", "id": null}', "null", '{"text": null, "id": 7}']
    found = list(predict.answers(predictor, lines, lines_at_a_time=2, input_format="json"))
    assert [answer.get("id", "none") for answer in found] == [None, "none", 7]
