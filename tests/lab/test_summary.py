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


# Decimal numbers in the text of the page on folding that are settings, or that no file has.
DECLARED = {
    "22.7",  # million parameters of the teacher, as everywhere
    "0.05",  # the allowed difference of an error
    ".001",  # the bound between ideas that helped and others
    ".459",  # written down in no file, as the page says
    ".368",
    ".321",
    ".322",
    "1.6",  # how many times as fast three layers are: in a generated part, too
    "2.0",  # a version of SQuAD
}
OF_OTHERS = "## Related work"  # the section whose numbers are those of papers
# Pages for readers -> decimal numbers next to a linked file which are not of this file.
PAGES = {
    "docs/start/first_model.md": set(),
    "docs/start/pretrain_in_ten_minutes.md": set(),
    "docs/guides/finetuning.md": set(),
    "docs/guides/other_languages.md": {"91.8"},  # in no file, as the page says
    "docs/guides/embeddings.md": {".43", ".825"},  # of the pages that are linked there
    "docs/guides/web_page.md": {"4.6", "4.3"},  # 3.7 MB in base 85; a version
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
    """All numbers of a JSON file."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        return set().union(*map(numbers_in, content))
    return {float(content)} if isinstance(content, (int, float)) else set()


def is_one_of(decimal: str, numbers: set[float]) -> bool:
    """Whether a number, rounded to the digits of `decimal`, is one of these, or a percentage."""
    digits = len(decimal.partition(".")[2])
    scaled = {scale * number for number in numbers for scale in (1, 100)}
    # Half a unit of the last digit, with room for ties.
    return any(abs(number - float(decimal)) <= 0.5001 * 10**-digits for number in scaled)


def decimals_without_source(page: str, text: str) -> list[str]:
    """The decimal numbers of a page which are in no JSON file that their paragraph links, and not declared.

    On the page on folding, a paragraph with a number must link a file.
    """
    missing = []
    is_folding = page == FOLDING
    declared = DECLARED if is_folding else PAGES[page]
    text = re.sub(rf"{OF_OTHERS}\n.*?(?=\n## )", "", text, flags=re.DOTALL)
    for paragraph in paragraphs_of(text, PARTS.get(page, {})):
        files = re.findall(r"\]\(((?:\.\./results/)?data/\w+\.json)\)", paragraph)
        numbers: set[float] = set()
        for file in files:
            numbers |= numbers_in(json.loads(((ROOT / page).parent / file).read_text()))
        without_links = re.sub(r"arXiv [\d.]+|\]\([^)]*\)", "", paragraph)
        decimals = re.findall(r"(?<![\w.])\d*\.\d+", without_links)
        if files or is_folding:
            missing += [
                decimal
                for decimal in decimals
                if decimal not in declared and not is_one_of(decimal, numbers)
            ]
    return missing


@pytest.mark.parametrize("page", [FOLDING, *PAGES])
def test_the_numbers_of_a_paragraph_are_in_the_json_files_that_it_links(page):
    assert decimals_without_source(page, (ROOT / page).read_text()) == []


@pytest.mark.parametrize(
    ("page", "number", "wrong"),
    [
        (FOLDING, "86.80", "86.94"),
        (FOLDING, ".975", ".913"),
        (FOLDING, ".265", ".273"),
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
