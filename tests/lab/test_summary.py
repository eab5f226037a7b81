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


def without_parts(text: str, names) -> str:
    """A page without what the programs insert, without code and formulas."""
    for name in names:
        text = re.sub(rf"<!-- {name} -->.*?<!-- end of {name} -->", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```|\$\$.*?\$\$", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`]*`|\$[^$]*\$", "", text)


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


def decimals_without_source(text: str) -> list[str]:
    """The decimal numbers of a page which are in no JSON file that their paragraph links, and not declared."""
    missing = []
    text = re.sub(rf"{OF_OTHERS}\n.*?(?=\n## )", "", text, flags=re.DOTALL)
    for paragraph in without_parts(text, PARTS[FOLDING]).split("\n\n"):
        numbers: set[float] = set()
        for file in re.findall(r"\]\((data/\w+\.json)\)", paragraph):
            numbers |= numbers_in(json.loads((ROOT / "docs" / "results" / file).read_text()))
        without_links = re.sub(r"arXiv [\d.]+|\]\([^)]*\)", "", paragraph)
        for decimal in re.findall(r"(?<![\w.])\d*\.\d+", without_links):
            if decimal not in DECLARED and not is_one_of(decimal, numbers):
                missing.append(decimal)
    return missing


def test_the_text_about_folding_has_the_numbers_of_the_json_files_that_it_links():
    assert decimals_without_source((ROOT / FOLDING).read_text()) == []


@pytest.mark.parametrize("number", ["86.80 on STS-B dev", "cosine of .975", "error from .265"])
def test_a_changed_number_in_the_text_about_folding_is_found(number):
    text = (ROOT / FOLDING).read_text()
    text = re.sub(r"\s+", " ", text) if number not in text else text
    changed = number.replace("86.80", "86.94").replace(".975", ".913").replace(".265", ".273")
    assert number in text
    assert decimals_without_source(text.replace(number, changed))


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
