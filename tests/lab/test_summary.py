"""Numbers on the first pages: they are those of the JSON files, and no others."""

import re

import pytest

from albert_tf import AlbertEncoder
from lab import summary
from lab.drawings import num_parameters
from tests.helpers import ROOT, TINY

PARTS = summary.parts()
# Decimal numbers of README.md that are not measured: versions, and the name of a license.
NOT_MEASURED = re.compile(
    r"TensorFlow (?:2\.20|1\.15)|Python 3\.11 to 3\.13|Apache-2\.0|@1\.30\.0|==2\.20"
)


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
