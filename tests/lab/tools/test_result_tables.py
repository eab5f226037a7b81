"""The pages of results have the tables that their JSON files give."""

import pytest

from lab.tools.result_tables import RESULTS, tables


@pytest.mark.parametrize(("key", "lines"), tables().items(), ids=str)
def test_the_page_has_the_table_of_its_data(key, lines):
    page, name = key
    part = (RESULTS / page).read_text().partition(f"<!-- table {name} -->")[2]
    assert part.partition("<!-- end -->")[0].strip().splitlines() == lines
    assert len(lines) > 6
