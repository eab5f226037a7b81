"""The documentation: links and anchors lead somewhere, named files exist, and commands use flags that exist."""

import itertools
import re
import shlex
import subprocess
import sys

import pytest

from tests.helpers import ROOT

PAGES = [
    *(
        ROOT / name
        for name in (
            "README.md",
            "CHANGELOG.md",
            "lab/README.md",
            "lab/benchmarks/README.md",
            "lab/experiments/results/README.md",
        )
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FOLDERS = "albert_tf|data_prep|lab|tests|docs"
PROGRAM = r"-m albert_tf\.command (?:data )?\w+|-m [\w.]+|\w+\.py"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w/.-]*\w/?)`")


def name_of(page):
    return str(page.relative_to(ROOT))


def anchors(page) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings(page):
    links = re.findall(r"(?:\]\(|^\[\w+\]: )([^)\s]+)", page.read_text(), re.MULTILINE)
    for target in links:
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_have_no_marks_of_a_merge(page):
    assert not re.search(r"<{7} |>{7} ", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_files_exist(page):
    for line in page.read_text().splitlines():
        for path in PATH.findall(line):
            assert "TODO(check)" in line or (ROOT / path).exists(), path


def test_each_fault_of_the_past_has_a_test_that_exists():
    page = (ROOT / "docs" / "reliability.md").read_text()
    rows = re.findall(r"^\| .* \| `(tests/\S+\.py)::(\w+)` \|$", page, re.MULTILINE)
    table = page.partition("## Past faults")[2].count("\n| ") - 1
    assert len(rows) == table > 20
    for file, test in rows:
        assert f"\ndef {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


def programs_and_flags() -> dict[str, set[str]]:
    """Flags in the pages' commands, by what Python runs."""
    used = {}
    for page in PAGES:
        for line in re.sub(r"\\\n\s*", "", page.read_text()).splitlines():
            line = line.replace("albert-tf ", "python -m albert_tf.command ")
            if not (match := re.match(rf" {{4}}(?:.*\| )?python ({PROGRAM})( .*)?$", line)):
                continue
            words = shlex.split((match[2] or "").replace("[", "").replace("]", ""), comments=True)
            words = words[: words.index("--")] if "--" in words else words
            program = match[1]
            if program == "-m pytest":
                continue
            if program == "-m lab.experiments":
                program += f" {words[0]}"
            flags = {word[2:].split("=")[0] for word in words if word.startswith("--")}
            used.setdefault(program, set()).update(flags)
    assert len(used) > 15, "the pattern does not match the commands of the pages"
    return used


@pytest.mark.slow
@pytest.mark.parametrize(("program", "flags"), programs_and_flags().items())
def test_commands_use_flags_that_exist_and_their_help_can_be_read_and_copied(program, flags):
    command = [sys.executable, *program.split(), "--help"]
    known = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for flag in flags:
        name = flag.removeprefix("no")
        assert re.search(rf"--(\[no\])?({flag}|{name})\b", known), f"{program} --{flag}"
    lines = known.splitlines()
    assert max(map(len, lines)) <= 100, max(lines, key=len)
    for line, next_line in itertools.pairwise(lines):  # the second line of a command
        assert not next_line.startswith(" " * 8 + "-") or line.endswith("\\"), line


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        path = str(page.relative_to(ROOT / "docs"))
        assert path == "README.md" or f"({path})" in index, path


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 900
    assert text.count("\n") <= 150


def test_every_page_is_at_most_two_clicks_from_the_readme():
    def linked(page):
        targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
        return {(page.parent / target).resolve() for target in targets if "://" not in target}

    first = {page for page in linked(ROOT / "README.md") if page.suffix == ".md"}
    second = set().union(*map(linked, first))
    pages = {path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".ipynb")}
    assert pages <= first | second, pages - first - second
