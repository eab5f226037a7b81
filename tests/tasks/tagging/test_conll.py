"""Files of tagged words: formats, columns, wrong files, real data."""

import pytest

from albert_tf.tasks.tagging import conll
from albert_tf.tasks.tagging.conll import Sentence
from albert_tf.tasks.tagging.task import tagged_file
from tests.helpers import error_of, make_task, write_files

TWO = "EU B-ORG\nrejects O\n\nPeter I-PER\nBlackburn I-PER\n"
WORDS = [("EU", "rejects"), ("Peter", "Blackburn")]


def read(
    folder, text, token_column="first", tag_column="last", need_tags=True, name="a.conll", **more
):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    more = {"token_column": token_column, "tag_column": tag_column, "flag": "train_file", **more}
    return conll.read_tagged(str(path), need_tags=need_tags, **more)


VARIANTS = {
    "as it is": TWO,
    "mark": "\ufeff" + TWO,
    "crlf": TWO.replace("\n", "\r\n"),
    "cr": TWO.replace(" ", "\t").replace("\n", "\r"),
    "white lines": "\n\n" + TWO.rstrip().replace("\n\n", "\n\t\n\n"),
    "docstart": "-DOCSTART- -X- O O\n\n" + TWO.replace("\n\n", "\n-DOCSTART- O\n"),
    "spaces": TWO.replace(" ", "  "),
    "tabs": TWO.replace(" ", "\t"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_the_format_hold_the_same_sentences(tmp_path, variant):
    text = VARIANTS[variant]
    file = read(tmp_path, text)
    assert [sentence.words for sentence in file.sentences] == WORDS
    assert file.tags == (("B-ORG", "O"), ("B-PER", "I-PER"))
    assert file.labels() == ("O", "B-ORG", "I-ORG", "B-PER", "I-PER")
    assert [sentence.tags for sentence in file.labelled(file.labels())] == [(1, 0), (3, 4)]
    lines = text.lstrip("\ufeff").splitlines()
    for sentence in file.sentences:
        assert lines[sentence.row - 1].startswith(sentence.words[0])


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_tables_hold_the_same_sentences(tmp_path, name):
    rows = [
        '{"w": ["EU", "said \\"no\\""], "t": ["B-ORG", "O"]}',
        '{"w": [" Peter"], "t": ["I-PER"]}',
    ]
    text = "\n".join(rows) if name == "a.jsonl" else f"[{','.join(rows)}]"
    file = read(tmp_path, text, name=name)
    assert file.sentences == (
        Sentence(("EU", 'said "no"'), row=file.sentences[0].row),
        Sentence((" Peter",), row=file.sentences[1].row),
    )
    assert file.sentences[1].place().startswith("row 2")
    assert file.tags == (("B-ORG", "O"), ("B-PER",))


@pytest.mark.parametrize("columns", [("2", "3"), ("word", "tag"), ("2", "tag"), ("word", "3")])
def test_columns_have_numbers_or_names(tmp_path, columns):
    has_header = not all(map(str.isdecimal, columns))
    lines = ["id\tword\ttag\tpos"] * has_header + ["1\tNew York\tB-LOC\tNNP", "2\tis\tO\tVBZ"]
    for need_tags in (True, False):
        file = read(tmp_path, "\n".join(lines), *columns, need_tags=need_tags)
        assert file.sentences == (Sentence(("New York", "is"), row=1 + has_header),)
        assert file.tags == ((("B-LOC", "O"),) if need_tags else None)


def test_a_file_to_predict_for_needs_no_tags(tmp_path):
    for text in ("EU\nrejects\n", "EU x\nrejects y\n"):
        file = read(tmp_path, text, need_tags=False)
        assert file.sentences == (Sentence(("EU", "rejects"), row=1),) and file.tags is None


WRONG = {
    "\n \n-DOCSTART- O\n": "contains no words",
    "EU O\nrejects\n": "a.conll: line 2: expected 2 columns, got 1",
    "EU\tB-ORG\n\tO\n": "a.conll: line 2: has no word; an empty line ends a sentence",
    "EU B-ORG\nis VBZ\n": "a.conll: line 2: expected a tag such as O, B-LOC or I-LOC, got 'VBZ';",
    "EU O\n": "every tag is O; name the column of the tags with --tag_column",
    "EU\xff O\n".encode("latin-1"): "cannot be read: line 1: 'utf-8' codec can't decode",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_files_are_refused_in_one_line(tmp_path, text):
    line = error_of(read, tmp_path, text)
    assert WRONG[text] in line and len(line.splitlines()) == 1


@pytest.mark.parametrize(
    "row", ['{"w": "EU", "t": ["O"]}', '{"w": ["EU"], "t": "O"}', '{"w": ["EU"], "t": ["O", "O"]}']
)
def test_a_table_of_another_form(tmp_path, row):
    line = error_of(read, tmp_path, row, name="words.jsonl")
    assert (
        "words.jsonl: row 1 (line 1): expected lists of the same length in 'w' and 't' (--token_column"
        in line
    )


def test_a_column_that_is_not_there_is_named(tmp_path):
    for column in ("3", "c"):
        line = error_of(read, tmp_path, "a b\nEU O\n", tag_column=column)
        assert line.endswith(f"a.conll: line 1: has no column {column!r}, only a, b")


def test_an_unknown_type_names_its_line(tmp_path):
    line = error_of(read(tmp_path, TWO).labelled, ("O", "B-ORG", "I-ORG"))
    assert line.endswith("a.conll: line 4: expected a label (O, B-ORG, I-ORG), got 'B-PER'")


@pytest.mark.parametrize("name, sentences, types", [("wnut17", 1009, 6), ("msra_zh", 2000, 3)])
def test_real_files_are_read_whole(real_data, name, sentences, types):
    path = str(real_data / "tagging" / name / "dev.conll")
    columns = {"token_column": "first", "tag_column": "last"}
    file = conll.read_tagged(path, **columns, need_tags=True, flag="train_file")
    assert len(file.sentences) == sentences and len(file.labels()) == 1 + 2 * types


OTHERS = {
    "comments": "# newdoc\n# sent_id = 1\n# text = EU rejects\n"
    + TWO.replace("\n\n", "\n\n# text = #x\n"),
    "comments before tabs": "# id 5239\tdomain=x\tO\n" + TWO.replace(" ", "\t"),
    "tabs and spaces": TWO.replace("EU ", "EU\t"),
    "both in a line": "EU NNP B-ORG\nrejects VBZ\tO\n\nPeter\tNNP I-PER\nBlackburn NNP I-PER\n",
}


@pytest.mark.parametrize("variant", OTHERS)
def test_files_of_others_hold_the_same_sentences(tmp_path, variant):
    file = read(tmp_path, OTHERS[variant])
    assert [sentence.words for sentence in file.sentences] == WORDS
    assert file.tags == (("B-ORG", "O"), ("B-PER", "I-PER"))


def test_a_word_may_begin_with_a_number_sign(tmp_path):
    words = [("#", "1"), ("#EU", "#Peter")]
    for text in ("# O\n1 B-X\n\n#EU B-X\n#Peter O\n", "#\tO\n1\tB-X\n\n#EU\tB-X\n#Peter\tO\n"):
        assert [sentence.words for sentence in read(tmp_path, text).sentences] == words
    file = read(tmp_path, "#\n1\n\n#EU\n#Peter\n", need_tags=False)
    assert [sentence.words for sentence in file.sentences] == words


def test_other_white_space_belongs_to_words(tmp_path):
    for separator in " \t":
        lines = [f"10\u00a0000{separator}B-X", f"\u3000{separator}O", f"a\u3000b\u2028{separator}O"]
        [sentence] = read(tmp_path, "\n".join(lines)).sentences
        assert sentence.words == ("10\u00a0000", "\u3000", "a\u3000b\u2028")


def test_a_flag_says_what_tags_without_letters_are(tmp_path):
    text = "Ann PER\nLee PER\nis O\nin O\nRome LOC\n"
    file = read(tmp_path, text, scheme="bare")
    assert file.tags == (("B-PER", "I-PER", "O", "O", "B-LOC"),)
    file = read(tmp_path, "I-PER PRON\nam VERB\n. .\n", scheme="words")
    assert file.labels() == (".", "PRON", "VERB") and file.tags == (("PRON", "VERB", "."),)
    assert [sentence.tags for sentence in file.labelled(file.labels())] == [(1, 2, 0)]
    line = error_of(read, tmp_path, text)
    assert "got 'PER'" in line and "--tag_scheme=bare or words" in line


def test_rows_without_words_are_kept_where_each_is_answered(tmp_path, capsys):
    text = '{"w": ["Ann"]}\n{"w": []}\n\n{"w": null}\n'
    file = read(tmp_path, text, need_tags=False, name="a.jsonl", flag="predict_file")
    assert [sentence.words for sentence in file.sentences] == [("Ann",), (), (), ()]
    assert "a.jsonl: 3 of 4 rows have no words" in capsys.readouterr().out


def test_answers_that_conll_cannot_hold_are_json_lines(tmp_path, tiny_pretrained):
    write_files(tmp_path, {"t.conll": TWO, "p.jsonl": '{"w": ["b\\nc"]}\n{"w": []}\n'})
    flags = [f"--train_file={tmp_path / 't.conll'}", f"--predict_file={tmp_path / 'p.jsonl'}"]
    flags += [f"--init_checkpoint={tiny_pretrained}", "--do_eval=false", "--do_predict"]
    line = error_of(make_task, "tagger", *flags, "--predictions_file=out.conll")
    assert line.endswith(r"cannot hold the word 'b\nc'; give a name ending with .jsonl")
    made = make_task("tagger", *flags)
    assert made.older_predictions == ("predictions/predictions.conll", made.predictions_file())
    [text] = tagged_file("p", [("b",), ()], predicted=[("O",), ()]).values()
    assert text.endswith('\n{"tokens": [], "predicted": []}\n')


def test_conllu_has_words_in_its_second_column(tmp_path):
    rows = ["1-2\tdu\t_", "1\tde\tADP", "2\tle\tDET", "2.1\tx\tX"]
    text = "# sent_id = 1\n" + "\n".join("\t".join([row, *"_______"]) for row in rows)
    file = read(tmp_path, text, "2", "3", scheme="words")
    assert file.sentences[0].words == ("de", "le") and file.tags == (("ADP", "DET"),)


def test_white_space_in_a_list_is_a_word(tmp_path):
    row = '{"tokens": ["Ann", "\\n\\n", "lives"], "labels": ["B-PER", "O", "O"]}'
    file = read(tmp_path, row, "tokens", "labels", name="a.jsonl")
    assert file.sentences[0].words == ("Ann", "\n\n", "lives")
    csv = "tokens,labels\n\"['Ann', 'lives']\",\"['B-PER', 'O']\"\n"
    assert read(tmp_path, csv, "tokens", "labels", name="a.csv").tags == (("B-PER", "O"),)


@pytest.mark.parametrize(
    "words", [("New\nYork", "a\tb", "ok"), ("\n\n", "x "), ("#", "a\u00a0b", "#c")]
)
def test_words_of_predictions_are_read_back_as_they_were(tmp_path, words):
    tags = ["B-X", "I-X", "O"][: len(words)]
    [(name, text)] = tagged_file("predictions", [words], predicted=[tags]).items()
    assert name.endswith(".jsonl") == (words[0] != "#")
    columns = ("tokens", "predicted") if name.endswith(".jsonl") else ("first", "last")
    file = read(tmp_path, text, *columns, name=name.split("/")[-1])
    assert [sentence.words for sentence in file.sentences] == [words] and file.tags == (
        tuple(tags),
    )
