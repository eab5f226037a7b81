"""The record of the small runs: the page holds its tables, and it has every run that the script makes."""

import json

import pytest

from lab.tools import small_runs, small_runs_report
from tests.helpers import ROOT

RUNS = json.loads(small_runs_report.RECORD.read_text())
TABLES = ("rates_table", "baseline_table", "stuck_table", "domain_table")


@pytest.mark.parametrize("name", TABLES)
def test_the_page_holds_the_tables_of_the_record(name):
    page = (ROOT / "docs" / "results" / "small_models.md").read_text()
    assert "\n".join(getattr(small_runs_report, name)(RUNS)) in page


def test_the_record_has_the_runs_of_all_rates():
    declared = {
        f"rates/{width}/{task}/{kind}/{rate:g}/{seed}"
        for width, sweeps in small_runs.SWEEPS.items()
        for (kind, task, seed), rates in sweeps.items()
        for rate in rates
    }
    assert declared == {name for name in RUNS if name.startswith("rates/")}


def test_authors_are_split_without_a_shared_passage(tmp_path):
    books = tmp_path / "books"
    books.mkdir()
    for number in range(7):
        words = [f"{number}.{index}" for index in range(45 * (20 + number))]
        (books / f"author{number}-title.txt").write_text(" ".join(words))
    work = small_runs.Work(tmp_path, books, tmp_path)
    rows = [{tuple(line.split("\t")) for line in part.splitlines()[1:]} for part in work._authors()]
    assert rows[0] and rows[1] and not rows[0] & rows[1]
    assert {author for part in rows for _, author in part} == {
        f"author{number}" for number in range(1, 7)
    }
