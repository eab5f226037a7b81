"""The documentation: links and anchors lead somewhere, named files exist, and commands use flags that exist."""

import json
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from tests.helpers import ROOT

LAB = ("README.md", "benchmarks/README.md", "experiments/results/README.md")
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")]
PAGES += [ROOT / "lab" / name for name in LAB]
PAGES += [ROOT / "findings" / "README.md", *sorted((ROOT / "models").glob("*/*.md"))]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
PROGRAM = r"-m albert_tf\.command (?:data )?\w+|-m [\w.]+|\w+\.py"
PATH = re.compile(r"`((?:albert_tf|data_prep|lab|tests|docs)/[\w/.-]*\w/?)`")
SOURCES = (".py", ".pyi", ".toml", ".html", ".js")
NAMED_PAGE = re.compile(r"\b(docs/(?:[a-z]\w*/)*\w+\.(?:md|ipynb|png))(?:#([\w-]+))?")
HISTORY = "history.md"  # names programs that are gone


def name_of(page):
    return str(page.relative_to(ROOT))


def text_of(page) -> str:
    """The text of a page; of a notebook, that of its cells which are text."""
    if page.suffix != ".ipynb":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def anchors(page) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=name_of)
def test_links_lead_to_files_and_headings_and_named_files_exist(page):
    text = text_of(page)
    assert not re.search(r"<{7} |>{7} ", text)
    for target in re.findall(r"(?:\]\(|^\[\w+\]: )([^)\s]+)", text, re.MULTILINE):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target
    if page.name != HISTORY:
        for path in PATH.findall(text):
            assert (ROOT / path).exists(), path


def test_pages_that_programs_and_their_sources_name_exist():
    """Also with their headings: a message sends a user to the page that it names."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    sources = [
        ROOT / name
        for name in listed.splitlines()
        if name.endswith(SOURCES) or name == "Dockerfile"
    ]
    named = {
        place
        for source in sources
        if source.exists()
        for place in NAMED_PAGE.findall(source.read_text())
    }
    assert len(named) > 15, "the pattern does not match the pages that the sources name"
    for path, anchor in named:
        assert (ROOT / path).exists(), path
        assert not anchor or anchor in anchors(ROOT / path), f"{path}#{anchor}"


def commands_in_sentences(page: pathlib.Path) -> list[str]:
    """`albert-tf ...` inside sentences and tables, where a command may go over two lines."""
    sentences = re.sub(
        r"^```.*?^```|^ {4}.*?$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    commands = re.findall(r"`(albert-tf (?:data )?[a-z]\w*\s[^`]*--[^`]*)`", sentences)
    return ["    " + " ".join(command.split()) for command in commands]


def programs_and_flags() -> dict[str, set[str]]:
    """Flags in the pages' commands, by what Python runs, which of several in a line is the last."""
    used = {}
    for page in PAGES:
        lines = re.sub(r"\\\n\s*", "", page.read_text()).splitlines()
        for line in [*lines, *commands_in_sentences(page)]:
            line = line.replace("albert-tf ", "python -m albert_tf.command ")
            if not (match := re.match(rf" {{4}}(?:.* )?python ({PROGRAM})( .*)?$", line)):
                continue
            words = shlex.split((match[2] or "").replace("[", "").replace("]", ""), comments=True)
            words = words[: words.index("--")] if "--" in words else words
            program = match[1]
            if program == "-m lab.experiments":
                program += f" {words[0]}"
            flags = {word[2:].split("=")[0] for word in words if word.startswith("--")}
            if program != "-m pytest":
                used.setdefault(program, set()).update(flags)
    assert len(used) > 15, "the pattern does not match the commands of the pages"
    return used


@pytest.mark.slow
@pytest.mark.parametrize(("program", "flags"), programs_and_flags().items())
def test_commands_use_flags_that_exist(program, flags):
    command = [sys.executable, *program.split(), "--help"]
    known = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for flag in flags:
        name = flag.removeprefix("no")
        assert re.search(rf"--(\[no\])?({flag}|{name})\b", known), f"{program} --{flag}"


def links_of(page, text: str) -> set[pathlib.Path]:
    """The files in the repository to which `text`, of this page, links."""
    targets = re.findall(r"\]\(([^)#\s]+)", text)
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


def test_every_page_is_in_the_index_and_at_most_two_clicks_from_the_readme():
    index = ROOT / "docs" / "README.md"
    linked = links_of(index, index.read_text())
    pages = {path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".ipynb")}
    assert pages - {index} <= linked, pages - linked
    assert index in links_of(ROOT / "README.md", (ROOT / "README.md").read_text())


def test_each_group_of_the_index_has_the_pages_of_the_folder_of_its_name():
    index = ROOT / "docs" / "README.md"
    pages = {path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".ipynb")}
    grouped = {index}
    for group in index.read_text().split("\n## ")[1:]:
        title, _, text = group.partition("\n")
        in_group = links_of(index, text) & pages
        assert in_group == {page for page in pages if page.parent.name == title.lower()}, title
        grouped |= in_group
    assert grouped == pages
