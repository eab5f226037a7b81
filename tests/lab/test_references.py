"""The references of commands and of Python, and the stub, are what --help, signatures and docstrings say."""

import pytest

from lab.tools import api_reference, cli_reference, stub


@pytest.mark.parametrize(
    "reference", [api_reference, stub, pytest.param(cli_reference, marks=pytest.mark.slow)]
)
def test_the_page_is_what_the_program_says(reference):
    page = reference.PAGE.read_text()
    assert page == reference.page(), f"python -m {reference.__name__} writes it again"
