"""The pages of results have the tables that their JSON files give."""

import json

import pytest

from lab.tools.result_tables import DOCS, RESULTS, tables


@pytest.mark.parametrize(("key", "lines"), tables().items(), ids=map("-".join, tables()))
def test_the_page_has_the_table_of_its_data(key, lines):
    page, name = key
    part = (DOCS / page).read_text().partition(f"<!-- table {name} -->")[2]
    assert part.partition("<!-- end -->")[0].strip().splitlines() == lines
    assert len(lines) > 3


def test_the_readme_has_the_numbers_of_the_comparison_with_the_original():
    pages = json.loads((RESULTS / "not_kept.json").read_text())["pages"]
    measured = {
        row[0].partition(" (")[0]: row[2] for row in pages["faithful.md"]["numbers"]["rows"]
    }
    readme = (DOCS.parent / "README.md").read_text()
    for line in ("eight training losses", "every variable after those eight steps"):
        assert f"| {measured[line]} |" in readme, line
