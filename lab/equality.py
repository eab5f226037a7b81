"""What must stay equal: runs the programs of a checkout on fixed data, and compares the values of two checkouts.

    python -m lab.equality --checkout=. --output_file=after.json [--parts=records,tasks] [--speed]
    python -m lab.equality --compare docs/results/data/equality_before.json after.json

Only programs are called, never functions, so that every version with the same flags can be measured. With
ALBERT_TEST_DATA, real text and the original's golden numbers are included. Speeds need an idle machine.
"""

import argparse
import hashlib
import json
import math
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "albert-tiny-docs"
VOCABULARY = MODEL / "spiece.model"
SIZES = {"vocab_size": 6000, "embedding_size": 64, "hidden_size": 128, "num_hidden_layers": 4}
SIZES |= {"num_attention_heads": 4, "intermediate_size": 512, "max_position_embeddings": 128}
TEXTS = """It rains. It is wet.
  two  spaces\u00a0and a no-break space
Caf\u00e9 na\u00efve co\u00f6perate \u1e9e
\uff21\uff22\uff23 \u2460 \ufb01ne
\u4e2d\u6587 and \u65e5\u672c\u8a9e
1,234.56 $5 ``quoted'' \u201ccurly\u201d
e\u0301\u0327 \u200bzero
"""


class Checkout:
    """The programs of a checkout, and a folder for what they write."""

    def __init__(self, folder: str, work: str):
        self.folder, self.work = pathlib.Path(folder).resolve(), pathlib.Path(work)

    def start(self, command: str) -> subprocess.Popen:
        """Starts a module with its flags."""
        own = {"PYTHONPATH": str(self.folder), "TF_CPP_MIN_LOG_LEVEL": "3"}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        words = [sys.executable, "-m", *shlex.split(command)]
        return subprocess.Popen(
            words, cwd=self.folder, env={**os.environ, **own}, text=True, **pipes
        )

    def run(self, command: str, text: str = "") -> str:
        """Runs a program of `albert-tf` to its end; returns its standard output."""
        process = self.start(f"albert_tf.command {command}")
        output, errors = process.communicate(text)
        if process.returncode:
            raise RuntimeError(f"{command.partition('--')[0]}: {(errors or output).strip()[-300:]}")
        return output

    def answers(self, model, lines: list[str]) -> list[dict]:
        """The answers of `predict`."""
        # Versions differ in how they tell that a line is JSON: by this flag, or by its first character.
        is_json = lines[0].startswith("{") and "input_format" in self.run("predict --help")
        flag = "--input_format=json" if is_json else ""
        output = self.run(f"predict {model} {flag}", "".join(f"{line}\n" for line in lines))
        return list(map(json.loads, output.splitlines()))

    def make_records(self, name: str, flags: str) -> pathlib.Path:
        """A folder of pretraining records."""
        folder = self.work / name
        every = f"--max_seq_length=128 --num_workers=1 --random_seed=7 --output_dir={folder}"
        self.run(f"data create_pretraining_data {every} {flags}")
        return folder


def words(seed: int, number: int) -> list[str]:
    """Random words of the vocabulary, the frequent ones more often."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(VOCABULARY))
    pieces = [processor.id_to_piece(one) for one in range(13, 1500)]
    known = [one[1:] for one in pieces if one.startswith("\u2581") and one[1:].isalpha()]
    weights = [1 / (rank + 5) for rank in range(len(known))]
    return random.Random(seed).choices(known, weights, k=number)


def sentences(seed: int, number: int) -> list[str]:
    """Random sentences of 3 to 25 words."""
    rng, source = random.Random(seed), iter(words(seed, 25 * number))
    return [" ".join(next(source) for _ in range(rng.randint(3, 25))) for _ in range(number)]


def corpus(seed: int, documents: int) -> str:
    """A text of documents of 12 random sentences."""
    lines = [f"{line}." for line in sentences(seed, 12 * documents)]
    return "".join("\n".join([*lines[n : n + 12], "\n"]) for n in range(0, len(lines), 12))


def digest(value) -> str:
    """A short hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def read_lines(path: pathlib.Path) -> list:
    """The values of a file of JSON lines."""
    return list(map(json.loads, path.read_text().splitlines()))


def golden(checkout: Checkout) -> dict:
    """The tests against the original's numbers, which exist only with ALBERT_TEST_DATA."""
    process = checkout.start("pytest -q -p no:cacheprovider tests/training/test_golden.py")
    output = process.communicate()[0].strip()
    return {"status": process.returncode, "skipped": "skipped" in output.splitlines()[-1]}


def ids(checkout: Checkout) -> dict:
    """The tokens of fixed texts, and how likely the model finds them."""
    scores = list(map(json.loads, checkout.run(f"score {MODEL}", TEXTS).splitlines()))
    return {name: [one[name] for one in scores] for name in ("tokens", "log_likelihood")}


def contents(folder: pathlib.Path) -> dict:
    """The number of records, and a hash of what they contain, in any order."""
    import tensorflow as tf

    paths = sorted(map(str, folder.glob("*.tfrecord*")))
    found = []
    for raw in tf.data.TFRecordDataset(paths).as_numpy_iterator():
        features = tf.train.Example.FromString(raw).features.feature
        kinds = {name: getattr(one, one.WhichOneof("kind")).value for name, one in features.items()}
        found.append(digest({name: list(map(float, values)) for name, values in kinds.items()}))
    return {"records": len(found), "contents": digest(sorted(found))}


def records(checkout: Checkout) -> dict:
    """Sentences, and the contents of records of each kind, made with a fixed seed."""
    text, data = checkout.work / "corpus.txt", os.environ.get("ALBERT_TEST_DATA")
    text.write_text(corpus(1, 300))
    own, found = f"--input_file={text} --spm_model_file={VOCABULARY}", {}
    cases = {"packed": f"{own} --dupe_factor=2", "dynamic": f"{own} --masking=dynamic"}
    cases["full"] = f"{own} --dupe_factor=2 --record_format=full --single_segment=clean"
    if data:
        real, text = pathlib.Path(data).resolve(), checkout.work / "wikipedia.txt"
        pages = sorted((real / "text" / "wikipedia").glob("wiki_*"))[0]
        checkout.run(
            f"data split_sentences --input_file={pages} --output_file={text} --num_workers=1"
        )
        found["sentences"] = digest(text.read_text())
        released = f"--spm_model_file={real}/vocab/30k-clean.model"
        cases["wikipedia"] = f"--input_file={text} {released} --dupe_factor=2"
        chinese = f"--input_file={real}/chinese/news_zh_1.txt --vocab_file={real}/chinese/vocab.txt"
        cases["chinese"] = f"{chinese} --dupe_factor=2"
    made = {name: checkout.make_records(name, flags) for name, flags in cases.items()}
    return found | {name: contents(folder) for name, folder in made.items()}


def _values_of_run(run: pathlib.Path) -> dict:
    from safetensors import numpy as safetensors

    lines = read_lines(run / "metrics.jsonl")
    names = ("step", "loss", "masked_lm_loss", "sentence_order_loss", "learning_rate")
    weights = dict(sorted(safetensors.load_file(run / "model" / "model.safetensors").items()))
    squares = [(values.astype("float64") ** 2).sum() for values in weights.values()]
    hashed = hashlib.sha256(b"".join(values.tobytes() for values in weights.values())).hexdigest()
    own = {"weights": hashed[:16], "norms": [float(one**0.5) for one in squares]}
    return {name: [line[name] for line in lines] for name in names} | own


def pretraining(checkout: Checkout) -> dict:
    """A small pretraining: its losses and weights, and whether a killed and resumed one has the same."""
    text, config = checkout.work / "pretraining.txt", checkout.work / "config.json"
    text.write_text(corpus(2, 200))
    config.write_text(json.dumps(SIZES))
    own = f"--spm_model_file={VOCABULARY}"
    made = checkout.make_records("pretraining", f"{own} --input_file={text} --dupe_factor=2")
    command = f"""pretrain {own} --input_file={made} --eval_file={made} --albert_config_file={config} --seed=5
        --train_batch_size=32 --num_train_steps=120 --num_warmup_steps=10 --learning_rate=0.005 --log_every_steps=5
        --save_checkpoints_steps=20 --eval_every_steps=60 --max_eval_steps=4 --output_dir={checkout.work}/"""
    cut = checkout.work / "cut"
    checkout.run(f"{command}whole")
    process = checkout.start(f"albert_tf.command {command}cut")
    while process.poll() is None and not list(cut.glob("checkpoints/step-*40*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    checkout.run(f"{command}cut")
    values, resumed = _values_of_run(checkout.work / "whole"), _values_of_run(cut)
    was_killed = process.returncode == -signal.SIGKILL
    return {**values, "was_killed": was_killed, "resumed_is_equal": values == resumed}


def _write_task_data(work: pathlib.Path, split: str, texts: list[str]) -> None:
    """Writes data of every task."""
    parts = [text.split() for text in texts]
    tables = {"tsv": "text\tlabel\n", "pairs.tsv": "a\tb\n", "conll": ""}
    questions = []
    for n, (text, own) in enumerate(zip(texts, parts, strict=True)):
        tables["tsv"] += f"{text}\t{'yes' if 'is' in own else 'no'}\n"
        tables["pairs.tsv"] += f"{' '.join(own[::2])}\t{' '.join(own[1::2])}\n"
        tables["conll"] += "".join(f"{w} {'B-X' if len(w) > 6 else 'O'}\n" for w in own) + "\n"
        answer = {"text": own[2], "answer_start": len(" ".join(own[:2])) + 1}
        question = {"id": f"{split}{n}", "question": f"what follows {own[1]}?", "answers": [answer]}
        questions.append({"context": text, "qas": [question]})
        page = {"article": text, "options": [own[:1] * 3 + own[1:2]], "questions": [f"{own[0]} _"]}
        folder = work / "RACE" / split / ("middle", "high")[n % 2]
        folder.mkdir(parents=True, exist_ok=True)
        page |= {"id": f"{n}.txt", "answers": ["ABCD"[n % 4]]}
        (folder / f"{n}.txt").write_text(json.dumps(page))
    squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": questions}]}
    for ending, content in {**tables, "json": json.dumps(squad)}.items():
        (work / f"{split}.{ending}").write_text(content)


def tasks(checkout: Checkout) -> dict:
    """The scores of one small fine-tuning for each task, and what its model answers."""
    work, texts, found = checkout.work / "tasks", sentences(4, 300), {}
    _write_task_data(work, "train", texts[:240])
    _write_task_data(work, "dev", texts[240:])
    text = texts[0]
    pieces = {"tag": {"tokens": text.split()}, "squad": {"question": "the?", "context": text}}
    pieces["race"] = {"article": text, "question": "the _", "options": ["a", "b", "c", "d"]}
    flags = {"race": f"--data_dir={work}/RACE"}
    own = {"classify": ("tsv", "--task_name=tsv --text_columns=text"), "tag": ("conll", "")}
    own["squad"] = ("json", "--version=1.1 --max_query_length=16 --doc_stride=32")
    own["embed"] = ("pairs.tsv", "--text_columns=a,b")
    for name, (ending, more) in own.items():
        flags[name] = f"{more} --train_file={work}/train.{ending} --eval_file={work}/dev.{ending}"
    every = f"--init_checkpoint={MODEL} --num_train_epochs=2 --max_seq_length=64 --seed=6 --bias_correction=false"
    for name, more in flags.items():
        run = checkout.work / "runs" / name
        checkout.run(f"{name} {every} --learning_rate=0.0003 --output_dir={run} {more}")
        scores = json.loads((run / "results.json").read_text())["eval"]
        answer = checkout.answers(run, [json.dumps(pieces[name]) if name in pieces else text])
        found[name] = {"scores": scores, "answer": answer}
    return found


def _of_saved_model(folder: pathlib.Path, texts: list[str]) -> list:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (its operations)

    model = tf.saved_model.load(str(folder / "1"))
    inputs = {"text_a": tf.constant(texts), "text_b": tf.constant([""] * len(texts))}
    return model.signatures["serving_default"](**inputs)["probabilities"].numpy().tolist()


def _of_tflite(folder: pathlib.Path, texts: list[str]) -> list:
    import numpy as np
    import sentencepiece
    from ai_edge_litert.interpreter import Interpreter

    processor = sentencepiece.SentencePieceProcessor(model_file=str(VOCABULARY))
    run = Interpreter(str(folder / "model.tflite")).get_signature_runner()
    rows = []
    for text in texts:
        tokens = [2, *processor.encode(text), 3]
        row = np.zeros([3, *run.get_input_details()["input_ids"]["shape"]], np.int32)
        row[0, 0, : len(tokens)], row[1, 0, : len(tokens)] = tokens, 1
        logits = run(input_ids=row[0], input_mask=row[1], segment_ids=row[2])["logits"][0]
        rows.append((np.exp(logits) / np.exp(logits).sum()).tolist())
    return rows


def exports(checkout: Checkout) -> dict:
    """The largest difference between the predictor's probabilities and those of each export of a classifier."""
    run, found = checkout.work / "runs" / "classify", {}
    texts = sentences(11, 40)
    expected = [list(one["probabilities"].values()) for one in checkout.answers(run, texts)]
    readers = {"saved_model": _of_saved_model, "tflite": _of_tflite}
    for name in ("onnx", "onnx --quantization=int8", *readers):
        folder = checkout.work / "exports" / digest(name)
        checkout.run(f"export {run} --output_dir={folder} --format={name}")
        if name in readers:
            got = readers[name](folder, texts)
        else:
            answers = checkout.answers(folder / "model.onnx", texts)
            got = [list(one["probabilities"].values()) for one in answers]
        pairs = [
            pair for rows in zip(expected, got, strict=True) for pair in zip(*rows, strict=True)
        ]
        found[name] = max(abs(one - other) for one, other in pairs)
    return found


def seconds_of(call, *arguments) -> float:
    """The seconds of a call."""
    began = time.monotonic()
    call(*arguments)
    return time.monotonic() - began


def speed(checkout: Checkout) -> dict:
    """Tokens per second of packed training, preparation in times of SentencePiece, texts per second, start-up."""
    import sentencepiece

    text, config = checkout.work / "speed.txt", checkout.work / "speed.json"
    text.write_text(corpus(12, 8000))
    lines = text.read_text().splitlines()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(VOCABULARY))
    ten_passes = 10 * seconds_of(processor.encode, lines)
    flags = f"--input_file={text} --spm_model_file={VOCABULARY} --dupe_factor=10"
    checkout.make_records("compiled", flags)  # the first call compiles
    found = {"preparation": seconds_of(checkout.make_records, "speed", flags) / ten_passes}
    config.write_text(json.dumps({**SIZES, "hidden_size": 256, "intermediate_size": 1024}))
    run, made = checkout.work / "speed_run", checkout.work / "speed"
    checkout.run(f"""pretrain --input_file={made} --albert_config_file={config} --spm_model_file={VOCABULARY}
        --train_batch_size=64 --num_train_steps=80 --num_warmup_steps=10 --log_every_steps=20 --do_eval=false
        --output_dir={run}""")
    counts = json.loads((made / "metadata.json").read_text())["counts"]
    rate = max(line["examples_per_second"] for line in read_lines(run / "metrics.jsonl")[1:])
    found["training_tokens_per_second"] = rate * counts["tokens_in_records"] / counts["examples"]
    one, many = (seconds_of(checkout.answers, MODEL, sentences(13, n)) for n in (1, 4001))
    found["predicted_texts_per_second"] = 4000 / (many - one)
    for name in ("help", "no_such_flag"):
        start = checkout.start(f"albert_tf.command classify --{name}")
        found[f"seconds_of_{name}"] = seconds_of(start.communicate)
    return found


PARTS = {one.__name__: one for one in (golden, ids, records, pretraining, tasks, exports)}


def measure(checkout: Checkout, parts: list[str], output_file: str) -> None:
    """Writes the values of the parts, after each; a part that fails has its error instead."""
    head = ["git", "-C", str(checkout.folder), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
    about = {"commit": commit, "real_data": "ALBERT_TEST_DATA" in os.environ}
    found = {}
    for name in parts:
        began = time.monotonic()
        try:
            found[name] = {**PARTS, "speed": speed}[name](checkout)
        except Exception as error:  # the other parts are still measured
            found[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(
            f"{name}: {time.monotonic() - began:.0f} s", found[name].get("failed", ""), flush=True
        )
        content = json.dumps({**about, "values": found}, indent=1)
        pathlib.Path(output_file).write_text(f"{content}\n")


def flat(value, path: str = "") -> dict:
    """The leaves of nested dictionaries and lists of them, by their joined keys."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {path: value}
    inner = [flat(each, f"{path}.{key}".strip(".")) for key, each in value.items()]
    return {name: leaf for leaves in inner for name, leaf in leaves.items()}


def difference(one, other) -> str:
    """`equal`, the largest difference of numbers, or both values."""
    if one == other:
        return "equal"
    lists = [value if isinstance(value, list) else [value] for value in (one, other)]
    numbers = all(isinstance(value, float | int) for values in lists for value in values)
    if numbers and len(lists[0]) == len(lists[1]):
        pairs = list(zip(*lists, strict=True))
        near = all(math.isclose(*pair, rel_tol=1e-4, abs_tol=1e-5) for pair in pairs)
        most = max(abs(a - b) for a, b in pairs)
        return (
            f"{'near' if near else 'different'}, by {most:.2g}: {str(one)[:20]} / {str(other)[:20]}"
        )
    return f"different: {str(one)[:50]} / {str(other)[:50]}"


def compare(before: str, after: str) -> list[str]:
    """The lines of a table of two files' values."""
    files = (json.loads(pathlib.Path(file).read_text())["values"] for file in (before, after))
    one, other = map(flat, files)
    names = dict.fromkeys([*one, *other])
    rows = [f"| {name} | {difference(one.get(name), other.get(name))} |" for name in names]
    return ["| value | |", "|---|---|", *rows]


def main() -> None:
    """See the module."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--checkout", default=str(ROOT), help="Folder whose programs are run.")
    parser.add_argument("--output_file", default="equality.json", help="JSON file of the values.")
    parser.add_argument("--parts", default=",".join(PARTS), help="Parts, separated by commas.")
    parser.add_argument("--speed", action="store_true", help="Whether speeds are measured, too.")
    parser.add_argument("--compare", nargs=2, metavar="JSON", help="Prints how two files differ.")
    arguments = parser.parse_args()
    if arguments.compare:
        print("\n".join(compare(*arguments.compare)))
        return
    parts = [*filter(None, arguments.parts.split(",")), *["speed"] * arguments.speed]
    with tempfile.TemporaryDirectory() as work:
        measure(Checkout(arguments.checkout, work), parts, arguments.output_file)


if __name__ == "__main__":
    main()
