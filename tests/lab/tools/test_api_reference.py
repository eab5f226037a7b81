"""The reference of the public names."""

import albert_tf
from lab.tools import api_reference
from tests.helpers import ROOT


def test_the_reference_is_that_of_the_docstrings():
    page = (ROOT / "docs" / "api.md").read_text()
    assert page == api_reference.page(), "run `python -m lab.tools.api_reference`"


def test_the_reference_has_every_public_name():
    page = api_reference.page()
    for name in albert_tf.__all__:
        assert f"\n## {name}\n" in page
