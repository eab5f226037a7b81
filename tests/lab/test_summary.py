"""Numbers on the first pages: they are those of the JSON files, and no others."""

import json
import re

import pytest

from albert_tf import AlbertEncoder
from lab import summary
from lab.drawings import num_parameters
from lab.fine_tuning import report as fine_tuning_report
from lab.fold import report as folding_report
from tests.helpers import ROOT, TINY

FOLDING = folding_report.PAGE
PARTS = {**summary.parts(), **fine_tuning_report.parts()}
PARTS[FOLDING] = {**PARTS[FOLDING], **folding_report.parts()}
# Decimal numbers of README.md that are not measured: versions, a flag, and the name of a license.
NOT_MEASURED = re.compile(
    r"TensorFlow (?:2\.20|1\.15)|Python 3\.11 to 3\.13|Apache-2\.0|@1\.30\.0|==2\.20|fraction=0\.1"
)

OF_OTHERS = "## Related work"  # the section whose numbers are those of papers
# Logged values, of which a file has so many that almost every number is one of them.
LOGGED = {"losses", "loss", "evaluations", "seconds"}
# Pages for readers -> what they say with decimal numbers that are not of the file which the paragraph links.
PAGES = {
    FOLDING: (
        "six layers, D 384, 22.7 million parameters",  # of the teacher, as everywhere
        "or of 0.05 of the error",  # a setting
        "After the same 1.8 processor hours",  # computed from minutes and from seconds, as in the table
        "did not lower the error, or by .001 at most",  # the bound between ideas that helped and others
        "were aligned (.459 instead of .368)",  # written down in no file, as the page says
        "of each layer's own (.321 instead of .322)",
        "Three layers without sharing are 1.6 times as fast",  # in a generated part, too
        "SQuAD's development set of version 2.0",
    ),
    "docs/start/first_model.md": (),
    "docs/start/pretrain_in_ten_minutes.md": (),
    "docs/guides/finetuning.md": (),
    "docs/guides/other_languages.md": ("TF-IDF had 91.8 %, which is in no file",),
    # Of the pages that are linked there.
    "docs/guides/embeddings.md": ("albert-tiny-docs has .43 on", "to compare texts, [.825 without"),
    "docs/guides/web_page.md": ("4.6 MB of each page are the engine", "Version 4.3.2 in Node 20"),
}


@pytest.mark.parametrize("page", PARTS)
def test_a_page_has_the_numbers_of_the_json_files(page):
    text = (ROOT / page).read_text()
    for name, lines in PARTS[page].items():
        expected = f"<!-- {name} -->\n\n" + "\n".join(lines) + f"\n\n<!-- end of {name} -->"
        assert expected in text, f"{page}, {name}: run python -m lab.summary"


def test_the_readme_has_no_measured_number_that_was_written_by_hand():
    text = (ROOT / "README.md").read_text()
    for name in PARTS["README.md"]:
        text = re.sub(rf"<!-- {name} -->.*?<!-- end of {name} -->", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    assert not re.findall(r"\d*\.\d+", NOT_MEASURED.sub("", text))


def paragraphs_of(text: str, names) -> list[str]:
    """Paragraphs and rows of tables, without what the programs insert, code, formulas, and links."""
    for name in names:
        text = re.sub(rf"<!-- {name} -->.*?<!-- end of {name} -->", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```|\$\$.*?\$\$", "", text, flags=re.DOTALL)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\|", r"\n|", text, flags=re.MULTILINE)
    return [re.sub(r"`[^`]*`|\$[^$]*\$", "", part) for part in text.split("\n\n")]


def numbers_in(content) -> set[float]:
    """All numbers of a JSON file that are not logged."""
    if isinstance(content, dict):
        content = [value for key, value in content.items() if key not in LOGGED]
    if isinstance(content, list):
        return set().union(*map(numbers_in, content))
    is_number = isinstance(content, (int, float)) and not isinstance(content, bool)
    return {float(content)} if is_number else set()


def is_one_of(decimal: str, numbers: set[float]) -> bool:
    """Whether a number, rounded to the digits of `decimal`, is one of these, or a percentage of a share."""
    digits = len(decimal.partition(".")[2])
    percentages = {100 * number for number in numbers if 0 <= number <= 1}
    # Half a unit of the last digit, with room for ties.
    return any(
        abs(number - float(decimal)) <= 0.5001 * 10**-digits for number in numbers | percentages
    )


def without_links(paragraph: str) -> str:
    """A paragraph on one line, without addresses, and without the numbers of articles."""
    text = re.sub(r"arXiv [\d.]+|\]\([^)]*\)", "", paragraph)
    return " ".join(text.split())


def paragraphs_to_check(page: str, text: str) -> list[str]:
    """The paragraphs of a page that say what was measured here."""
    text = re.sub(rf"{OF_OTHERS}\n.*?(?=\n## )", "", text, flags=re.DOTALL)
    return paragraphs_of(text, PARTS.get(page, {}))


def decimals_without_source(page: str, text: str) -> list[str]:
    """The decimal numbers of a page which are in no JSON file that their paragraph links, and not declared.

    On the page on folding, a paragraph with a number must link a file. This finds most wrong numbers, not all: in a
    large file, such as fold_training.json, a wrong number of two digits may be that of another run.
    """
    missing = []
    for paragraph in paragraphs_to_check(page, text):
        files = re.findall(r"\]\(((?:\.\./results/)?data/\w+\.json)\)", paragraph)
        numbers: set[float] = set()
        for file in files:
            numbers |= numbers_in(json.loads(((ROOT / page).parent / file).read_text()))
        sentences = without_links(paragraph)
        for declared in PAGES[page]:
            sentences = sentences.replace(declared, "")
        decimals = re.findall(r"(?<![\w.])\d*\.\d+", sentences)
        if files or page == FOLDING:
            missing += [decimal for decimal in decimals if not is_one_of(decimal, numbers)]
    return missing


@pytest.mark.parametrize("page", PAGES)
def test_the_numbers_of_a_paragraph_are_in_the_json_files_that_it_links(page):
    text = (ROOT / page).read_text()
    assert decimals_without_source(page, text) == []
    sentences = [without_links(paragraph) for paragraph in paragraphs_to_check(page, text)]
    for declared in PAGES[page]:
        assert any(declared in sentence for sentence in sentences), declared


@pytest.mark.parametrize(
    ("page", "number", "wrong"),
    [
        (FOLDING, "86.80", "86.94"),
        (FOLDING, ".975", ".913"),
        (FOLDING, ".265", ".273"),
        # Declared in another paragraph, and a logged loss of 1.6.
        (FOLDING, "82.52 on its test set", "1.6 on its test set"),
        ("docs/guides/finetuning.md", "1.0 GB", "1.9 GB"),
        ("docs/guides/other_languages.md", "29.2", "29.9"),
    ],
)
def test_a_changed_number_is_found(page, number, wrong):
    text = (ROOT / page).read_text()
    assert number in text
    assert decimals_without_source(page, text.replace(number, wrong)) != []


def test_the_rows_of_the_comparison_with_transformers_add_up():
    rows = summary.table_beside_transformers()[2:]
    assert len(rows) == len(summary.beside_transformers())
    for row in rows:
        _, here, there, difference, _ = row.strip("| ").split(" | ")
        of_shown = float(here) - float(there)
        # Each of the three numbers is rounded to a tenth.
        assert of_shown == pytest.approx(float(difference.split()[0]), abs=0.151), row


def test_a_bound_is_rounded_up():
    assert summary._at_most(2.31) == "2.4"
    assert summary._at_most(2.5) == "2.5"


@pytest.mark.parametrize("sharing", [{}, {"num_hidden_groups": 2}, {"share_parameters": "none"}])
def test_the_picture_counts_parameters_as_the_model_has_them(sharing):
    config = TINY.replace(**sharing)
    assert num_parameters(config) == AlbertEncoder(config).count_params()
