r"""Compares `albert-tf search` with sentence-transformers as whole programs: start, tokens, vectors and search.

    python -m lab.whole_search model --tuned=fast --text_file=wiki_00 --python=/path/to/bin/python

`model` is a folder of sentence-transformers that both read; `fast` is what `albert-tf tune model` has exported. Each
way is a process of its own that reads the same lines, makes their vectors, and answers the same queries. The ways take
turns; processor seconds are those of the process with all its threads. The results also say how many of the first
results are those of sentence-transformers.
"""

import dataclasses
import datetime
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from lab import machine
from lab.made_texts import neighboring_words

NUM_QUERIES = 50
# As the first example of its documentation does it, with its default size of a batch.
OTHER = """
import sys
from sentence_transformers import SentenceTransformer, util

folder, corpus, queries = sys.argv[1:]
model = SentenceTransformer(folder, device="cpu")
vectors = model.encode(open(corpus).read().splitlines(), convert_to_tensor=True)
asked = model.encode(open(queries).read().splitlines(), convert_to_tensor=True)
for found in util.semantic_search(asked, vectors, top_k=10):
    print(found[0]["corpus_id"])
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WholeSearchSettings(Settings):
    """The models and the texts."""

    model: str = setting("", "A folder of sentence-transformers.", required=True, input_path=True)
    tuned: str = setting("", "The same model as `albert-tf tune` exported it; empty for none.")
    text_file: str = setting(
        "", "Text, of whose words the lines are made.", required=True, input_path=True
    )
    python: str = setting("", "A Python with sentence-transformers; empty for this one.")
    num_lines: int = setting(20_000, "Lines of the corpus.", minimum=NUM_QUERIES)
    least_words: int = setting(3, "Words of the shortest lines.", minimum=1)
    most_words: int = setting(40, "Words of the longest lines.", minimum=1)
    repetitions: int = setting(2, "Turns.", minimum=1)
    output_file: str = setting(
        "docs/results/data/whole_search.json", "JSON file of the results; empty for none."
    )


@dataclasses.dataclass(frozen=True)
class Turn:
    """What a process took, and the numbers of the lines that it found first."""

    seconds: float
    processor_seconds: float
    first_results: list[int]


def main(settings: WholeSearchSettings) -> None:
    """Measures, prints a line for each way, and writes the results."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines = made_lines(settings)
        (folder / "corpus.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        queries = [" ".join(line.split()[:5]) for line in lines[:: len(lines) // NUM_QUERIES]]
        queries = queries[:NUM_QUERIES]
        (folder / "queries.txt").write_text("".join(f"{line}\n" for line in queries), "utf-8")
        turns: dict[str, list[Turn]] = {}
        for _ in range(settings.repetitions):
            for title, command in commands(settings, folder).items():
                turn = measured(command, folder, is_json="albert_tf" in command)
                turns.setdefault(title, []).append(turn)
                print(
                    f"{title}: {turn.seconds:.1f} s, processor {turn.processor_seconds:.1f} s",
                    flush=True,
                )
    results = {title: described(each, turns) for title, each in turns.items()}
    print(json.dumps(results, indent=2))
    if settings.output_file:
        about = {
            "processor": machine.processor_name(),
            "commit": machine.commit(".", short=True),
            "date": f"{datetime.date.today()}",
            "lines": settings.num_lines,
            "words": [settings.least_words, settings.most_words],
        }
        files.write_bytes(settings.output_file, files.json_bytes({**about, "ways": results}))


def made_lines(settings: WholeSearchSettings) -> list[str]:
    """Lines of neighboring words of the text."""
    text = pathlib.Path(settings.text_file).read_text(encoding="utf-8")
    words = [word for word in text.split() if not word.startswith(("<", "url="))]
    lengths = (settings.least_words, settings.most_words)
    return neighboring_words(words, settings.num_lines, lengths)


def commands(settings: WholeSearchSettings, folder: pathlib.Path) -> Mapping[str, Sequence[str]]:
    """The command of each way."""
    corpus = str(folder / "corpus.txt")
    ours = [sys.executable, "-m", "albert_tf", "search", f"--corpus={corpus}"]
    commands_by_way = {}
    if settings.tuned:
        commands_by_way["ours, tuned"] = [*ours, f"--model={settings.tuned}"]
    commands_by_way["ours, float32"] = [*ours, f"--model={settings.model}"]
    program = [settings.python or sys.executable, "-c", OTHER]
    commands_by_way["sentence-transformers"] = [
        *program,
        settings.model,
        corpus,
        str(folder / "queries.txt"),
    ]
    return commands_by_way


def measured(command: Sequence[str], folder: pathlib.Path, is_json: bool) -> Turn:
    """Runs a command whose lines of standard output are answers."""
    for kept in folder.glob("*.vectors"):
        kept.unlink()
    before = processor_seconds()
    started = time.perf_counter()
    with (folder / "queries.txt").open() as queries:
        done = subprocess.run(command, stdin=queries, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise UserError(f"{' '.join(command[:4])}: {done.stderr[-500:]}")
    answers = done.stdout.splitlines()
    if is_json:
        first = [json.loads(line)["results"][0]["index"] for line in answers]
    else:
        first = [int(line) for line in answers]
    return Turn(seconds, processor_seconds() - before, first)


def processor_seconds() -> float:
    """Of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def described(of_way: Sequence[Turn], turns: Mapping[str, Sequence[Turn]]) -> dict[str, Any]:
    """Medians, and how many of the first results are those of sentence-transformers."""
    expected = turns["sentence-transformers"][0].first_results
    same = np.mean(np.array(of_way[0].first_results) == np.array(expected))
    return {
        "seconds": round(float(np.median([turn.seconds for turn in of_way])), 1),
        "processor_seconds": round(
            float(np.median([turn.processor_seconds for turn in of_way])), 1
        ),
        "same_first_results": round(float(same), 3),
    }


if __name__ == "__main__":
    flags.run(main, WholeSearchSettings, description=__doc__, positional=("model",))
