"""Makes the small model of `models/albert-tiny-docs`: text -> vocabulary -> records -> pretraining -> model folder.

    python lab/tools/make_small_model.py --work_dir=runs/tiny_docs --output_dir=models/albert-tiny-docs

The text is the documentation in Python's standard library and in those installed packages whose metadata state a
permissive license. A step whose result exists is skipped; an interrupted pretraining is resumed by the same command.
"""

import dataclasses
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from albert_tf.model.config import AlbertConfig

MODEL = AlbertConfig(
    vocab_size=6000,
    embedding_size=64,
    hidden_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=128,
)
# Tokens of a sequence: most steps are short and cheap, as in BERT's own pretraining.
SHORT, LONG = 64, 128
# The license as packages state it -> its SPDX name.
_SPDX = "0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause CC0-1.0 MIT MIT-0 MIT-CMU PSF-2.0 Zlib"
PERMISSIVE = {
    **{name: name for name in _SPDX.split()},
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallModelSettings(Settings):
    """Where the model is written, and how long it is trained."""

    work_dir: str = setting("", "Folder for corpus, records and checkpoints.", required=True)
    output_dir: str = setting("", "Folder of the finished model.", required=True)
    num_train_steps: int = setting(
        6000,
        "Steps with short sequences; a quarter as many with long ones follow.",
        minimum=200,
    )


def main(settings: SmallModelSettings) -> None:
    """Runs the programs, then writes the model folder."""
    folder = settings.work_dir
    sources = permissive_sources()
    files.write_bytes(f"{folder}/albert_config.json", MODEL.to_json_string().encode())
    for result, program, values in steps(settings, sources):
        if not os.path.exists(result):
            command = [*program.split(), *(f"--{name}={value}" for name, value in values.items())]
            print(f"\n$ python {shlex.join(command)}", flush=True)
            if status := subprocess.run([sys.executable, *command]).returncode:
                raise UserError(f"{program} ended with status {status}, see above")
    write_model(settings, sources)


class Source(NamedTuple):
    """A folder or file of Python code, the packages to which it belongs, and their license."""

    path: str
    packages: tuple[str, ...]
    license: str


def permissive_sources() -> list[Source]:
    """The standard library and the installed packages with permissive licenses.

    A folder that several packages share is used if all of them are permissive.
    """
    owners = defaultdict(dict)
    for package in importlib.metadata.distributions():
        paths = package.files or ()
        tops = {path.parts[0] for path in paths if path.suffix == ".py" and ".." not in path.parts}
        for top in tops:
            path = os.fspath(package.locate_file(top))
            owners[path][f"{package.name} {package.version}"] = license(package)
    python = Source(
        sysconfig.get_path("stdlib"), (f"Python {platform.python_version()}",), "PSF-2.0"
    )
    return [python] + [
        Source(path, tuple(packages), " AND ".join(sorted(set(packages.values()))))
        for path, packages in sorted(owners.items())
        if all(packages.values())
    ]


def license(package: importlib.metadata.Distribution) -> str:
    """The license that a package's metadata states; "" if it is not permissive."""
    stated = package.metadata.get("License-Expression")
    classifiers = package.metadata.get_all("Classifier", [])
    names = [name.rpartition(" :: ")[2] for name in classifiers if name.startswith("License ::")]
    if stated:
        names = re.split(r" AND | OR ", stated)
    elif not names:
        names = [package.metadata.get("License", "")]
    known = [PERMISSIVE.get(name, "") for name in names]
    return (stated or " AND ".join(known)) if all(known) else ""


def steps(
    settings: SmallModelSettings, sources: Sequence[Source]
) -> Iterator[tuple[str, str, dict[str, object]]]:
    """The programs: for each a file that exists when it has finished, its name, and its flags."""
    folder = settings.work_dir
    train, held_out = f"{folder}/train.txt", f"{folder}/held_out.txt"
    vocabulary = f"{folder}/spiece"
    corpus = {"output_file": train, "eval_output_file": held_out, "eval_fraction": 0.03}
    corpus["input_file"] = ",".join(source.path for source in sources)
    yield train, "-m data_prep.sample_corpus", corpus
    sentencepiece = {"input_file": train, "output_prefix": vocabulary}
    sentencepiece["vocab_size"] = MODEL.vocab_size
    yield f"{vocabulary}.model", "-m data_prep.train_sentencepiece", sentencepiece
    for length, passes in ((SHORT, 8), (LONG, 2)):
        prepare = {
            "spm_model_file": f"{vocabulary}.model",
            "max_seq_length": length,
            "max_predictions_per_seq": length * 15 // 100 + 1,
            "ngram": 1,  # single words are learned in fewer steps than spans of up to three
            "single_segment": "clean",
        }
        kinds = {"train": {"masking": "dynamic", "dupe_factor": passes}}
        if length == LONG:
            kinds["held_out"] = {"dupe_factor": 2}
        for name, kind in kinds.items():
            records = f"{folder}/records/{name}_{length}"
            own = {**prepare, **kind, "input_file": f"{folder}/{name}.txt", "output_dir": records}
            yield f"{records}/metadata.json", "-m data_prep.create_pretraining_data", own
    short, long = f"{folder}/run_{SHORT}", f"{folder}/run_{LONG}"
    first = pretraining(folder, SHORT, 64, settings.num_train_steps, 0.005)
    yield f"{short}/results.json", "run_pretraining.py", first
    second = pretraining(folder, LONG, 32, settings.num_train_steps // 4, 0.003)
    second |= {"eval_file": f"{folder}/records/held_out_{LONG}", "max_eval_steps": 0}
    second |= {"init_checkpoint": f"{short}/model"}
    yield f"{long}/results.json", "run_pretraining.py", second


def pretraining(folder: str, length: int, batch: int, steps: int, rate: float) -> dict[str, object]:
    """The flags of pretraining with sequences of one length."""
    return {
        "input_file": f"{folder}/records/train_{length}",
        "output_dir": f"{folder}/run_{length}",
        "albert_config_file": f"{folder}/albert_config.json",
        "spm_model_file": f"{folder}/spiece.model",
        "train_batch_size": batch,
        "num_train_steps": steps,
        "num_warmup_steps": steps // 20,
        "learning_rate": rate,
        "save_checkpoints_steps": 500,
    }


def write_model(settings: SmallModelSettings, sources: Sequence[Source]) -> None:
    """Writes the model folder, with a card of the measured results."""
    from albert_tf.formats import pretrained  # TensorFlow

    folder = settings.work_dir
    counts = {
        name: files.read_json(f"{folder}/records/{name}_{LONG}/metadata.json")["counts"]
        for name in ("train", "held_out")
    }
    packages = defaultdict(set)
    for source in sources:
        packages[source.license].update(source.packages)
    results = files.read_json(f"{folder}/run_{LONG}/results.json")
    majority = results["majority"]
    data = {
        "text": "documentation inside Python's standard library and installed packages",
        "documents, sentences": f"{counts['train']['documents']:,}, {counts['train']['sentences']:,}",
        "documents held out, for the results": counts["held_out"]["documents"],
        "masks": "15 % of the tokens, single whole words",
        "do lower case": True,
    }
    sections = {
        "header": {"license": "apache-2.0", "language": "en"},
        "Limits": {"use": "trials and tests; for real work, take one of the released models"},
        "Data": data,
        "Training": {
            f"sequences of {length} tokens": _phase(folder, length) for length in (SHORT, LONG)
        },
        "Results": {
            name: f"{value:.4f}"
            + (f" (majority class {majority[name]:.4f})" if name in majority else "")
            for name, value in results["eval"].items()
        },
        "Packages by license": {
            name: ", ".join(sorted(packages[name], key=str.lower)) for name in sorted(packages)
        },
    }
    pretrained.save_pretrained(
        pretrained.load_pretrained(f"{folder}/run_{LONG}/model"),
        settings.output_dir,
        spm_model_file=f"{folder}/spiece.model",
        card=sections,
    )


def _phase(folder: str, length: int) -> str:
    """A description of the pretraining with sequences of one length."""
    config = files.read_json(f"{folder}/run_{length}/config.json")
    run, optimizer = config["run"], config["optimizer"]
    steps = f"{optimizer['num_train_steps']:,} steps of {run['train_batch_size']} examples"
    return f"{steps}, {optimizer['optimizer']}, peak learning rate {optimizer['learning_rate']:g}"


if __name__ == "__main__":
    flags.run(main, SmallModelSettings, description=__doc__)
