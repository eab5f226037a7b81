"""The reference of the commands is what --help prints."""

import re

import pytest

from albert_tf.command import DATA_PROGRAMS, PROGRAMS
from lab.tools import cli_reference


@pytest.mark.slow
def test_the_page_is_what_help_prints():
    page = cli_reference.PAGE.read_text()
    assert page == cli_reference.page(), "python -m lab.tools.cli_reference writes it again"
    assert len(re.findall("^## albert-tf ", page, re.M)) == len(PROGRAMS) + len(DATA_PROGRAMS)
    assert "--init_checkpoint" in page
