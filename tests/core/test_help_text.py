"""--help shows every flag once, in the group of the class that declares it."""

import dataclasses
import re

from albert_tf.core.help_text import help_text
from albert_tf.core.settings import Settings, changed, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base(Settings):
    """What all have.

    More about it.
    """

    folder: str = setting("", "Where it is written.", required=True)
    size: int = setting(3, "Number of items.", minimum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own(Base):
    """What this program has."""

    size: int = changed(Base, "size", 5)
    kind: str = setting("", "What is done.", choices=("", "a", "b"))
    name: str = setting(
        "", "What it is called.", choices=("", *("long-name-" * n for n in (1, 2, 3)))
    )
    limit: int | None = setting(None, "At most so many.")
    most: int | None = setting(100, "At most so many steps.", none_value=0)
    fast: bool = setting(True, "Whether it is fast.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Other(Settings):
    """Something else."""

    rate: float = setting(0.5, "Share of it. " + "A long explanation that needs two lines. " * 3)


def test_flags_are_grouped_with_values_defaults_and_explanations():
    text = help_text("Does it.\n", [Other, Own])
    line = 22 * "-"
    assert text.startswith(f"Does it.\n\nWhat this program has.\n{line}\n\n  --kind=a|b\n")
    titles = ("What this program has.", "What all have.", "Something else.")
    groups = [text.index(title) for title in titles]
    assert groups == sorted(groups) and "More about it" not in text
    for line in (
        "--folder=TEXT (required)",
        "--size=NUMBER (default: 5)",
        "--limit=NUMBER\n",
        "--most=NUMBER (default: 100)\n",
        "--[no]fast (default: true)",
        "--rate=NUMBER (default: 0.5)\n      Share of it.",
    ):
        assert f"\n  {line}" in text
    assert len(re.findall(r"^  --", text, re.MULTILINE)) == 8
    assert "\n  --name=TEXT\n      What it is called. One of long-name-, long-name-long" in text
    assert max(map(len, text.splitlines())) <= 100


def test_prose_is_wrapped_and_examples_can_be_copied():
    prose = "Many words about it. " * 12
    for indent in ("", "    "):  # formatters of docstrings move examples to the left
        example = f"{indent}albert-tf do --this=1 \\\n{indent}    --that"
        text = help_text(f"Does it.\n\n{example}\n\n{prose}\n", [])
        assert "\n\n    albert-tf do --this=1 \\\n        --that\n\n" in text
        assert max(map(len, text.splitlines())) <= 100 and text.count("Many words") == 12
