"""PyTorch's side of `lab.fine_tuning`: transformers' model, tokenizer and schedule, and a loop as in its examples.

    python in_torch.py settings.json

It reads the data by itself and imports nothing of this project, and writes results.json and metrics.jsonl.
"""

import itertools
import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from scipy import stats
from sklearn import metrics

BATCH, LENGTH, IGNORED = 32, 128, -100


def read_texts(path, settings):
    """Texts, pairs of texts, and labels or scores."""
    lines = path.read_text(encoding="utf-8-sig").split("\n")[settings["header"] :]
    rows = [line.rstrip("\r").split("\t") for line in lines if line]
    label, *texts = settings["columns"]
    names = settings["labels"]
    labels = [names.index(row[label]) if names else float(row[label]) for row in rows]
    return [tuple(row[column] for column in texts) for row in rows], labels


def read_sentences(path, names):
    """Lists of words, and lists of tags; new tags are appended to `names`."""
    groups = itertools.groupby(path.read_text().split("\n"), lambda line: bool(line.strip()))
    rows = [[line.split("\t") for line in lines] for is_sentence, lines in groups if is_sentence]
    names += sorted({tag for row in rows for _, tag in row} - set(names))
    tags = [[names.index(tag) for _, tag in row] for row in rows]
    return [[word for word, _ in row] for row in rows], tags


def encoded(tokenizer, texts, labels, settings):
    """Features of each example, without padding."""
    if settings["columns"]:
        rows = [tokenizer(*pair, truncation=True, max_length=LENGTH) for pair in texts]
        return [{**row, "labels": label} for row, label in zip(rows, labels, strict=True)]
    examples = []
    for words, tags in zip(texts, labels, strict=True):
        row = tokenizer(words, is_split_into_words=True, truncation=True, max_length=LENGTH)
        ids = row.word_ids()
        is_first = [i is not None and (not k or ids[k - 1] != i) for k, i in enumerate(ids)]
        own = [tags[i] if first else IGNORED for i, first in zip(ids, is_first, strict=True)]
        examples.append({**row, "labels": own})
    return examples


def batches(examples, seed, steps):
    """Batches in a new random order in each epoch; a last batch is completed from the next epoch."""
    rng, waiting = np.random.default_rng(seed), []
    for _ in range(steps):
        if len(waiting) < BATCH:
            waiting = [*waiting, *rng.permutation(len(examples))]
        yield [examples[index] for index in waiting[:BATCH]]
        waiting = waiting[BATCH:]


def entities(tags, names):
    """The entities of a sentence in BIO tags: (type, first, end)."""
    found, begin = set(), None
    for k, name in enumerate([*(names[tag] for tag in tags), "O"]):
        kind = name[2:]
        if begin and not (name.startswith("I-") and kind == begin[0]):
            found.add((*begin, k))
            begin = None
        if name != "O" and not begin:
            begin = (kind, k)
    return found


def scores(logits, examples, names, metric_names):
    """The metrics of the development set."""
    truths = [example["labels"] for example in examples]
    if "f1" in metric_names and "accuracy" not in metric_names:
        right = guessed = true = 0
        for row, tags in zip(logits, truths, strict=True):
            known = [k for k, tag in enumerate(tags) if tag != IGNORED]
            answers = entities(row[known].argmax(-1).tolist(), names)
            expected = entities([tags[k] for k in known], names)
            right += len(answers & expected)
            guessed, true = guessed + len(answers), true + len(expected)
        precision, recall = right / max(guessed, 1), right / true
        f1 = 2 * right / (guessed + true)
        return {"f1": f1, "precision": precision, "recall": recall}
    rows = np.stack(logits)
    if not names:
        guesses = rows[:, 0]
        pairs = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}
        return {name: float(pair(guesses, truths)[0]) for name, pair in pairs.items()}
    guesses = rows.argmax(-1)
    found = {"accuracy": metrics.accuracy_score(truths, guesses)}
    if "f1" in metric_names:
        found["f1"] = metrics.f1_score(truths, guesses)
    if "matthews" in metric_names:
        found["matthews"] = metrics.matthews_corrcoef(truths, guesses)
    return {name: float(value) for name, value in found.items()}


def trained(model, collate, examples, settings, steps):
    """Trains a model; returns the losses of all steps."""
    no_decay = ("bias", "LayerNorm.weight")
    groups = {0.0: [], 0.01: []}
    for name, parameter in model.named_parameters():
        groups[0.0 if name.endswith(no_decay) else 0.01].append(parameter)
    groups = [{"params": values, "weight_decay": decay} for decay, values in groups.items()]
    optimizer = torch.optim.AdamW(groups, lr=settings["learning_rate"], eps=1e-6)
    warmup = int(0.1 * steps)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)
    losses = []
    model.train()
    for rows in batches(examples, settings["seed"], steps):
        loss = model(**collate(rows)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@torch.inference_mode()
def evaluated(model, collate, examples):
    """The logits of each example."""
    model.eval()
    order = sorted(range(len(examples)), key=lambda index: len(examples[index]["input_ids"]))
    found = {}
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        logits = model(**collate([examples[index] for index in rows])).logits
        found.update(zip(rows, logits.float().numpy(), strict=True))
    return [found[index] for index in range(len(examples))]


def main(path):
    """Trains and evaluates a model with the settings of a file."""
    settings = json.loads(pathlib.Path(path).read_text())
    transformers.set_seed(settings["seed"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    data, names = pathlib.Path(settings["data"]), list(settings["labels"])
    if settings["columns"]:
        sets = [read_texts(data / name, settings) for name in ("train.tsv", settings["dev"])]
        kind = transformers.AutoModelForSequenceClassification
        collate = transformers.DataCollatorWithPadding(tokenizer)
    else:
        names = []
        sets = [read_sentences(data / name, names) for name in ("train.conll", settings["dev"])]
        kind = transformers.AutoModelForTokenClassification
        collate = transformers.DataCollatorForTokenClassification(tokenizer)
    train, dev = (encoded(tokenizer, *pair, settings) for pair in sets)
    model = kind.from_pretrained(settings["model"], num_labels=len(names) or 1)
    steps = max(1, round(settings["epochs"] * len(train) / BATCH))
    losses = trained(model, collate, train, settings, steps)
    logits = evaluated(model, collate, dev)
    found = {"eval": scores(logits, dev, names, settings["metrics"]), "step": steps}
    folder = pathlib.Path(settings["output_dir"])
    means = [float(np.mean(losses[k : k + 10])) for k in range(0, len(losses), 10)]
    lines = [json.dumps({"loss": loss}) + "\n" for loss in means]
    (folder / "metrics.jsonl").write_text("".join(lines))
    (folder / "results.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
