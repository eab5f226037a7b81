"""Writes docs/reference/cli.md, the programs with their flags, from the texts of their --help.

python -m lab.tools.cli_reference
"""

import functools
import pathlib

from albert_tf import functions
from albert_tf.command import DATA_PROGRAMS, PROGRAMS
from albert_tf.core.flags import help_of_flag, help_text

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
_INTRODUCTION = """# Commands

`albert-tf PROGRAM --help` prints the text about a program, and the flags that it shares with others.
`python -m lab.tools.cli_reference` writes this page. In Python, [flags are arguments](api.md#classify).
"""
_FINE_TUNING = ("classify", "squad", "race", "tag", "embed")
# Title of a section -> programs that share the flags in it.
FAMILIES = {
    "Flags of training": ("pretrain", "distill", *_FINE_TUNING),
    "Flags of fine-tuning": _FINE_TUNING,
    "Flags of a model": (
        "predict",
        "score",
        "search",
        "serve",
        "convert",
        "export",
        "tune",
        "fold",
    ),
}


def page() -> str:
    """The text of docs/reference/cli.md."""
    sections = [_section_of_family(title) for title in FAMILIES]
    sections += [_section_of_program(name) for name in (*PROGRAMS, *DATA_PROGRAMS)]
    return "\n".join((_INTRODUCTION, *sections))


@functools.cache
def common_flags(title: str) -> dict[str, str]:
    """The flags that all programs of a family have, with equal help and defaults; each is in one family only."""
    programs = [functions.program_of(name) for name in FAMILIES[title]]
    first, *others = (
        {name: "\n".join(help_of_flag(field)) for name, field in program.fields().items()}
        for program in programs
    )
    common = {
        name: text
        for name, text in first.items()
        if all(other.get(name) == text for other in others)
    }
    titles = list(FAMILIES)
    for earlier in titles[: titles.index(title)]:
        for name in common_flags(earlier):
            common.pop(name, None)
    return common


def _section_of_family(title: str) -> str:
    programs = ", ".join(f"`{name}`" for name in FAMILIES[title])
    flags = "\n".join(common_flags(title).values())
    return f"## {title}\n\nThese flags are the same in {programs}.\n\n```\n{flags}\n```\n"


def _section_of_program(name: str) -> str:
    """The text of --help without the flags of families, to which it links."""
    program = functions.program_of(name)
    titles = [title for title in FAMILIES if name in FAMILIES[title]]
    without = {flag for title in titles for flag in common_flags(title)}
    text = help_text(program.description, program.settings_classes, without=without).strip()
    section = f"## albert-tf {functions.words_of(name)}\n\n```\n{text}\n```\n"
    if not titles:
        return section
    links = [f"[{title}](#{title.lower().replace(' ', '-')})" for title in titles]
    return f"{section}\nIt also has the {' and the '.join(_lower(link) for link in links)}.\n"


def _lower(link: str) -> str:
    return link.replace("[F", "[f")


if __name__ == "__main__":
    PAGE.write_text(page())
