"""Rules of the project that are not left to attention: import directions, one Keras, no setting that nobody reads."""

import ast
import dataclasses
import functools
import importlib
import inspect
import pathlib
import re
from collections.abc import Iterable

import pytest

from albert_tf.core.settings import Settings
from tests.helpers import ROOT

# Folders without Python of the project.
NOT_SOURCE = {".git", ".ci", ".venv", "build", "dist", "demo", "docs", "runs", "tests"}
SOURCES = sorted(
    path
    for path in ROOT.rglob("*.py")
    if not path.relative_to(ROOT).parts[0].startswith(".")
    and path.relative_to(ROOT).parts[0] not in NOT_SOURCE
)


def dotted(path: pathlib.Path) -> str:
    """The name that a file is imported by."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path for path in SOURCES}


def imports(nodes: Iterable[ast.AST]) -> set[str]:
    """Every module that nodes import; names of ours that are modules in full."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {
                node.module if node.module in MODULES and name not in MODULES else name
                for name in full
            }
    return names


def imports_by_string(nodes: Iterable[ast.AST]) -> set[str]:
    """Every module that a string names in full, such as "albert_tf.tasks.race.task" or "lab.report:main"."""
    pattern = re.compile(r"((?:albert_tf|lab|data_prep)(?:\.\w+)+)(?::\w+)?")
    strings = [node.value for node in nodes if isinstance(node, ast.Constant)]
    matches = [pattern.fullmatch(value) for value in strings if isinstance(value, str)]
    return {match[1] for match in matches if match}


TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
IMPORTS = {name: imports(ast.walk(tree)) for name, tree in TREES.items()}
IMPORTS_BY_STRING = {name: imports_by_string(ast.walk(tree)) for name, tree in TREES.items()}
# Files of other projects that comments and docstrings name.
FOREIGN_FILES = {"utils/transformers/convert_albert.py", "models/albert/albert_backbone.py"}


@functools.cache
def allowed_imports() -> dict[str, set[str]]:
    """The diagram of docs/project/architecture.md: what each package may import besides itself."""
    text = (ROOT / "docs" / "project" / "architecture.md").read_text()
    (diagram,) = re.findall(r"```imports\n(.*?)```", text, re.DOTALL)
    lines = [line.partition("<-") for line in diagram.splitlines() if "<-" in line]
    return {package.strip(): set(others.split()) for package, _, others in lines}


def package_of(module: str) -> str:
    """The package of the diagram that a module belongs to."""
    parts = module.split(".")
    if parts[0] != "albert_tf" or parts == ["albert_tf"]:
        return parts[0]
    return "programs" if MODULES[module].parent == ROOT / "albert_tf" else parts[1]


def test_every_folder_is_in_the_diagram():
    folders = {package_of(name) for name in MODULES if name != "albert_tf"}
    scripts = {path.stem for path in ROOT.glob("*.py")}
    assert folders - scripts == set(allowed_imports()) - {"runners"}


def is_allowed(module: str, other: str) -> bool:
    """Whether the diagram allows a module to import another."""
    package = package_of(module)
    if MODULES[module].parent == ROOT:
        package = "runners"
    if other == "albert_tf":  # for its version
        return True
    return package_of(other) == package or package_of(other) in allowed_imports()[package]


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_diagram(module):
    for name in IMPORTS[module] & MODULES.keys():
        assert is_allowed(module, name), name


def test_imports_by_string_follow_the_diagram():
    climbs = set()
    for module in MODULES.keys() - {"albert_tf"}:  # which is above all packages
        for name in IMPORTS_BY_STRING[module] & MODULES.keys():
            if not is_allowed(module, name):
                climbs.add((module, name))
    assert not climbs


def test_an_import_by_string_is_found_in_any_call():
    source = """
    imported("albert_tf.tasks.race.task", "RaceTask")
    pkgutil.resolve_name("albert_tf.formats.layouts:describe")
    print("albert_tf is not", "a.module", f"{name}.py")
    """
    tree = ast.parse(inspect.cleandoc(source))
    expected = {"albert_tf.tasks.race.task", "albert_tf.formats.layouts"}
    assert imports_by_string(ast.walk(tree)) == expected


def test_modules_that_strings_name_exist():
    for module, names in IMPORTS_BY_STRING.items():
        missing = [name for name in names if name not in MODULES]
        assert not missing, f"{module}: {missing}"


def test_files_that_comments_and_docstrings_name_exist():
    files = [path.relative_to(ROOT).as_posix() for path in SOURCES]
    tests = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")]
    for path in SOURCES:
        for name in re.findall(r"`(\w+(?:/\w+)+\.py)`", path.read_text()):
            is_ours = any(f"/{file}".endswith(f"/{name}") for file in [*files, *tests])
            assert is_ours or name in FOREIGN_FILES, f"{path}: {name}"


def test_packages_of_tasks_do_not_lean_on_each_other_in_a_circle():
    tasks = re.compile(r"albert_tf\.tasks\.(\w+)\.")
    left: dict[str, set[str]] = {}
    for module, names in IMPORTS.items():
        package = tasks.match(module)
        if not package:
            continue
        matches = [tasks.match(name) for name in names & MODULES.keys()]
        others = {match[1] for match in matches if match}
        left.setdefault(package[1], set()).update(others - {package[1]})
    while free := [name for name, others in left.items() if not others]:
        for name in free:
            del left[name]
        left = {name: others & left.keys() for name, others in left.items()}
    assert not left, left


def test_there_is_no_import_cycle():
    left = {name: others & MODULES.keys() - {name} for name, others in IMPORTS.items()}
    while free := [name for name, others in left.items() if not others]:
        for name in free:
            del left[name]
        left = {name: others & left.keys() for name, others in left.items()}
    assert not left, f"modules in or above a cycle: {sorted(left)}"


NEEDS_TENSORFLOW = ("tensorflow", "tf_keras", "official", "orbit")
WITHOUT_TENSORFLOW = [
    name
    for name in MODULES
    if re.match(r"albert_tf\.(core|text|data\.record_(formats|metadata))(\.|$)", name)
    or re.match(
        r"albert_tf\.tasks\.(registry|runner|source|presets|\w+\.(?!(task|losses|predictor|random_masks|student)$))",
        name,
    )
    or name.endswith(".settings")
    or name in ("albert_tf.formats.layouts", "albert_tf.serving.exports", "albert_tf.export")
]


@pytest.mark.parametrize("module", WITHOUT_TENSORFLOW)
def test_needs_no_tensorflow(module):
    """A wrong flag is refused before TensorFlow is loaded, and worker processes start in a moment."""
    reached = set()
    new = {module}
    while new:
        reached |= new
        name = new.pop()
        names = imports(TREES[name].body)  # imports inside functions are made when they are called
        assert not any(each.startswith(NEEDS_TENSORFLOW) for each in names), name
        new |= names & MODULES.keys() - reached


def test_functions_are_short():
    for name, tree in TREES.items():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            has_docstring = ast.get_docstring(function) is not None
            first = function.body[has_docstring:][0].lineno if function.body[has_docstring:] else 0
            assert not first or function.end_lineno - first < 60, f"{name}: {function.name}"
            arguments = function.args.args + function.args.kwonlyargs
            assert len([a for a in arguments if a.arg != "self"]) <= 8, f"{name}: {function.name}"


def settings_classes() -> list[type[Settings]]:
    """Every class of settings, wherever it is declared."""
    found = {}
    for name, path in MODULES.items():
        if re.search(
            r"^class \w+\(\w*(Settings|Config|Choice|Source)\)", path.read_text(), re.MULTILINE
        ):
            for cls in vars(importlib.import_module(name)).values():
                if inspect.isclass(cls) and issubclass(cls, Settings) and cls is not Settings:
                    found[cls] = None
    return list(found)


@functools.cache
def names_read() -> set[str]:
    """Attributes and strings of the sources: what is read, by name or by getattr."""
    read = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value)
    return read


def test_every_setting_is_read_somewhere():
    classes = settings_classes()
    assert len(classes) > 20
    for cls in classes:
        unread = [field.name for field in dataclasses.fields(cls) if field.name not in names_read()]
        assert not unread, cls
