"""Tags with the letter last, small or before a low line: read by the whole file, written back as they were."""

import pytest

from albert_tf.tasks.tagging import tag_forms
from albert_tf.tasks.tagging.tag_forms import form_of
from tests.helpers import error_of
from tests.tasks.tagging.test_conll import read

FORMS = {
    "B-TYPE": ("B-PER", "I-PER", "O"),
    "B_TYPE": ("B_PER", "I_PER", "O"),
    "b-TYPE": ("b-per", "i-per", "o"),
    "b_TYPE": ("b_per", "i_per", "O"),
    "TYPE-B": ("PER-B", "PER-I", "O"),
    "TYPE_B": ("PER_B", "PER_I", "O"),
    "TYPE-b": ("per-b", "per-i", "o"),
    "TYPE_b": ("PER_b", "PER_i", "O"),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_read_and_written_back(name, tmp_path):
    tags = FORMS[name]
    form = form_of(tags)
    assert form.name == name and tag_forms.named(name) == form
    type = "per" if "per" in tags[0] else "PER"
    canonical = [f"B-{type}", f"I-{type}", "O"]
    assert list(map(form.read, tags)) == canonical
    outside = "o" if form.is_small else "O"
    assert list(map(form.written, canonical)) == [*tags[:2], outside]
    lines = [f"word {tag}" for tag in tags]
    file = read(tmp_path, "\n".join(lines))
    assert file.tags == (tuple(canonical),) and file.form == form


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (("B-E", "O"), ("B-E", "O")),  # letter first, as in CoNLL's files
        (
            ("B-E", "PER-B"),
            ("E-B", "B-PER"),
        ),  # another tag says that the letter is last: E of the type B
        (("B-my-type", "I-my_type"), ("B-my-type", "I-my_type")),
        (("my-type-B", "a_b-E", "O"), ("B-my-type", "E-a_b", "O")),
        (("B_my-type", "S_a_b"), ("B-my-type", "S-a_b")),
        (("b-per", "O", "o"), ("B-per", "O", "O")),
        (
            ("M-LOC", "W-LOC", "E-LOC", "L-LOC", "U-LOC"),
            ("M-LOC", "S-LOC", "E-LOC", "L-LOC", "U-LOC"),
        ),
    ],
)
def test_the_whole_file_decides(tags, expected):
    assert tuple(map(form_of(tags).read, tags)) == expected


@pytest.mark.parametrize("tags", ["B-PER PER-B", "B-PER o", "B-PER B_LOC", "b-per I-per", "NN"])
def test_a_file_in_several_forms_is_rejected_in_one_line(tmp_path, tags):
    assert form_of(tags.split()) is None
    line = error_of(read, tmp_path, "\n".join(f"word {tag}" for tag in tags.split()))
    assert "expected a tag such as O, B-LOC or I-LOC, got" in line
    assert "PER-B, b-per or B_PER are read, too, if all tags of the file are written so" in line


def test_a_small_o_is_outside_of_bare_types(tmp_path):
    assert read(tmp_path, "Anna per\nlives o\n", scheme="bare").tags == (("B-per", "O"),)
    assert read(tmp_path, "Anna o\nlives O\n", scheme="bare").tags == (("B-o", "O"),)


@pytest.mark.parametrize("header", ["word tag", "Token\tNER", "text _ pos"])
@pytest.mark.parametrize("scheme", ["prefixed", "bare", "words"])
def test_names_of_columns_become_no_label(tmp_path, header, scheme, capsys):
    between = " _ " if "_" in header else " "
    text = f"{header}\nAnna{between}B-PER\nlives{between}O\n"
    file = read(tmp_path, text, scheme=scheme)
    assert file.sentences[0].words == ("Anna", "lives") and file.sentences[0].row == 2
    assert file.tags == (("B-PER", "O"),)
    assert "the first line is read as the names of the columns" in capsys.readouterr().out


def test_words_that_are_names_of_columns_stay_words(tmp_path):
    file = read(tmp_path, "word noun\nlabel noun\n", scheme="words")
    assert file.sentences[0].words == ("word", "label")
    assert read(tmp_path, "form pos\nword pos\n", scheme="words").labels() == ("pos",)
    # Without tags, the first line of a file for predictions is a word.
    assert read(tmp_path, "word\nlives\n", need_tags=False).sentences[0].words == ("word", "lives")
