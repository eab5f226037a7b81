"""A table replaces the one in a page, and nothing else."""

from lab.pages import with_table

PAGE = """# Title

<!-- table first -->

| old |

<!-- end -->

Text <!-- a comment -->.

<!-- table second -->

<!-- end -->
"""


def test_a_table_is_replaced_between_its_comments():
    page = with_table(PAGE, "first", ["| new |", "|---|"])
    assert page == PAGE.replace("| old |", "| new |\n|---|")
    assert with_table(page, "first", ["| old |"]) == PAGE


def test_a_page_without_the_table_stays():
    assert with_table(PAGE, "third", ["| new |"]) == PAGE
