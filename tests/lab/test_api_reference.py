"""The Python reference is what signatures and docstrings say."""

from lab.tools import api_reference


def test_the_page_is_what_the_docstrings_say():
    page = api_reference.PAGE.read_text()
    assert page == api_reference.page(), "python -m lab.tools.api_reference writes it again"
