"""The command `albert-tf`: the first words name a program, and the other words are its flags.

albert-tf classify --train_file=train.tsv ...
albert-tf data split_sentences --input_file=wiki.txt --output_file=sentences.txt
"""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

import albert_tf
from albert_tf.core.flags import FLAG_ERROR, exit_without_package
from albert_tf.core.program import Program

DATA = "data"
# The module of each program; that of a fine-tuning program is the definition of its task.
PROGRAMS: dict[str, str] = {
    "pretrain": "albert_tf.pretrain",
    "classify": "albert_tf.tasks.classification.definition",
    "squad": "albert_tf.tasks.squad.definition",
    "race": "albert_tf.tasks.race.definition",
    "tag": "albert_tf.tasks.tagging.definition",
    "embed": "albert_tf.tasks.embedding.definition",
    "fold": "albert_tf.fold",
    "distill": "albert_tf.distill",
    "predict": "albert_tf.predict",
    "score": "albert_tf.score",
    "search": "albert_tf.search",
    "convert": "albert_tf.convert",
    "export": "albert_tf.export",
    "tune": "albert_tf.tune",
    "serve": "albert_tf.serve",
}
DATA_PROGRAMS: dict[str, str] = {
    name: f"albert_tf.data_prep.{name}"
    for name in (
        "split_sentences",
        "train_sentencepiece",
        "create_pretraining_data",
        "sample_corpus",
    )
}


def main() -> None:
    """Starts the program that the command line names; ends the process."""
    command = "albert-tf"
    programs = PROGRAMS
    words = sys.argv[1:]
    if words[:1] == [DATA]:
        command = f"albert-tf {DATA}"
        programs = DATA_PROGRAMS
        words = words[1:]
    if not words or words[0] in ("--help", "-h", "help"):
        print(_overview(command, programs))
        return
    if words[0] == "--version":
        print(f"albert-tf {albert_tf.__version__}")
        return
    name, *rest = words
    if name not in programs:
        print(
            f"{command}: no program is called {name!r}; {_expected(name, programs)}",
            file=sys.stderr,
        )
        sys.exit(FLAG_ERROR)
    sys.argv = [f"{command} {name}", *rest]
    _run(programs[name])


def _expected(name: str, programs: Mapping[str, str]) -> str:
    """What may stand in place of the name of a program that is not there."""
    if programs is DATA_PROGRAMS:
        return f"expected {', '.join(programs)}"
    if name in DATA_PROGRAMS:
        return f"expected albert-tf {DATA} {name}"
    return f"expected {', '.join([*programs, DATA])}"


def start(name: str) -> None:
    """Runs a program with the flags of the command line; ends the process."""
    _run(PROGRAMS[name])


def program_of(module_name: str) -> Program:
    """The program of a module."""
    module = importlib.import_module(module_name)
    if definition := getattr(module, "DEFINITION", None):
        runner = importlib.import_module("albert_tf.tasks.runner")
        return runner.program_of(definition, module.__doc__)
    return module.program


def _run(module_name: str) -> None:
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        exit_without_package(error)
    if definition := getattr(module, "DEFINITION", None):
        importlib.import_module("albert_tf.tasks.runner").run(definition, module.__doc__)
    else:
        module.run()


def _overview(command: str, programs: Mapping[str, str]) -> str:
    """An overview of the programs of a command, with the first line of each."""
    rows = {name: _first_line(module) for name, module in programs.items()}
    if programs is PROGRAMS:
        rows[DATA] = f"Prepares text and data sets: albert-tf {DATA} --help lists the programs."
    width = max(map(len, rows))
    lines = [f"  {name:<{width}}  {line}" for name, line in rows.items()]
    usage = f"{command} PROGRAM --flag=value ...; PROGRAM --help explains its flags."
    return "\n".join([usage, "", *lines])


def _first_line(module: str) -> str:
    """The first line of a module's docstring; the module is not imported, because that can take seconds."""
    spec: Any = importlib.util.find_spec(module)
    with open(spec.origin, encoding="utf-8") as file:
        return (ast.get_docstring(ast.parse(file.read())) or "").partition("\n")[0]


if __name__ == "__main__":
    main()
