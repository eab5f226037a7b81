"""What is said of texts that a model cannot read, unknown tokens and cut texts: once, in programs and in Python."""

import io
import json
import types

import numpy as np
import pytest

from albert_tf import load_predictor, predict, score
from albert_tf.tasks.text_report import TextReport, TokenCounts, cut_line
from tests.helpers import make_task

TOKENIZER = types.SimpleNamespace(pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4)
CHINESE = ["送餐 很 快", "难吃 死了", "味道 不错"]
ENGLISH = ["anna saw a red house", "bert left ."]
UNKNOWN = "vocabulary does not know 100 % of the tokens"


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([2, 1, *[7] * 9, 3, 0, 0], ""),  # a tenth of ten tokens
        ([2, 1, *[7] * 8, 4, 3], "11 %"),  # [MASK] does not count
        ([2, 1, 1, 3], "100 %"),
        ([2, 3], ""),
        ([[2, 1, 3, 0], [2, 7, 7, 3]], "33 %"),
    ],
)
def test_more_than_a_tenth_of_unknown_tokens_is_a_warning(ids, expected):
    counts = TokenCounts()
    counts.add(np.array(ids), TOKENIZER)
    warning = counts.warning()
    assert (f"does not know {expected} of the tokens" in warning) == bool(expected)
    assert bool(warning) == bool(expected)
    assert not expected or "docs/guides/other_languages.md" in warning


@pytest.mark.parametrize(
    ("lengths", "limit", "model_limit", "has_windows", "expected"),
    [
        ([5, 9, 7], 9, 12, False, "3 texts, none of them cut at"),
        ([5, 10, 7], 9, 12, False, "3 texts, 1 of them (33 %) cut at"),
        ([5, 10, 7], 9, 12, False, "; --max_seq_length=10 reads them whole"),
        ([5, 90, 70], 9, 12, False, "warning: 3 texts, 2 of them"),
        (
            [5, 90, 70],
            9,
            12,
            False,
            "the model's limit is 12 tokens: --max_seq_length=12 reads more",
        ),
        ([5, 90, 70], 12, 12, False, "that is the model's limit of 12 tokens"),
        ([5, 90, 70], 12, 12, True, "12 tokens, and --windows reads them in parts"),
    ],
)
def test_a_cut_names_what_the_model_can_read(lengths, limit, model_limit, has_windows, expected):
    line = cut_line(
        np.array(lengths), "max_seq_length", limit, model_limit, may_have_windows=has_windows
    )
    assert expected in line
    assert line.startswith("warning") == (sum(np.array(lengths) > limit) > len(lengths) / 2)
    assert "--max_seq_length=90" not in line


def test_another_setting_that_cuts_has_no_advice_about_the_model():
    report = TextReport()
    report.count_length("max_qa_length", 90)
    (line,) = report.remarks({"max_qa_length": 7}, 512)
    assert (
        line == "1 texts, 1 of them (100 %) cut at --max_qa_length=7; 95 % have at most 90 tokens"
    )


@pytest.mark.parametrize("name", ["predict", "embed", "similarity", "rank"])
def test_python_warns_once_of_texts_that_are_unknown(tiny_pretrained, name):
    predictor = load_predictor(tiny_pretrained)
    calls = {
        "predict": predictor.predict,
        "embed": predictor.embed,
        "similarity": lambda texts: predictor.similarity(texts, texts),
        "rank": lambda texts: predictor.rank(texts[0], texts),
    }
    call = calls[name]
    call(ENGLISH * 99)  # does not hide what comes after it
    with pytest.warns(UserWarning, match=UNKNOWN) as caught:
        call(CHINESE)
        call(CHINESE)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert not str(caught[0].message).startswith("warning")


@pytest.mark.parametrize("program", [predict, score])
def test_programs_say_it_once_on_standard_error(tiny_pretrained, monkeypatch, capsys, program):
    settings = predict.PredictSettings if program is predict else predict.AnswerSettings
    for texts, expected in ((ENGLISH, 0), (CHINESE * 40, 1)):
        content = "\n".join(texts).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        program.main(settings(model=str(tiny_pretrained), batch_size=1))
        output = capsys.readouterr()
        assert output.err.count("does not know") == expected
        assert len([json.loads(line) for line in output.out.splitlines()]) == len(texts)


def test_a_masked_text_counts(tiny_pretrained):
    predictor = load_predictor(tiny_pretrained)
    with pytest.warns(UserWarning, match=UNKNOWN):
        predictor.predict(["送餐 [MASK] 快"])


def test_fine_tuning_says_it_once(task_flags, tmp_path, capsys):
    table = tmp_path / "t.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{text}\tgood\n{text}\tbad\n" for text in CHINESE))
    sentences = tmp_path / "t.conll"
    sentences.write_text("".join(f"{word} B-A\n" for word in " ".join(CHINESE).split()))
    _, flags = task_flags["tsv"]
    common = [flag for flag in flags if not flag.startswith(("--train_file", "--eval_file"))]
    common = [flag for flag in common if not flag.startswith(("--predict_file", "--task_name"))]
    common = [flag for flag in common if "column" not in flag]
    runs = {
        "classifier": (table, ["--task_name=table", "--text_columns=text", "--label_column=label"]),
        "tagger": (sentences, []),
        "embedder": (table, ["--text_columns=text,label", "--eval_columns=text,label"]),
    }
    for runner, (path, columns) in runs.items():
        files = [f"--train_file={path}", f"--eval_file={path}"]
        make_task(runner, *common, *files, *columns)
        error = capsys.readouterr().err
        assert error.count("does not know") == 1, runner
