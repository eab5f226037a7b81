"""PyTorch's side of `lab.fine_tuning`: transformers' model, tokenizer and schedule, and a loop as in its examples.

    python in_torch.py settings.json

It reads the data by itself and imports nothing of this project, and writes results.json and metrics.jsonl. It computes
in float32, on a GPU if there is one.
"""

import collections
import functools
import itertools
import json
import pathlib
import re
import string
import sys

import numpy as np
import torch
import transformers
from scipy import stats
from sklearn import metrics

BATCH = 32
LENGTH = 128
IGNORED = -100  # the label of positions that have no loss
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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
        # The first token of a word has its tag: words None, 0, 0, 1, None -> tags of -, 0, -, 1, -.
        labels_of_tokens = []
        word_before = None
        for word in row.word_ids():
            is_first = word is not None and word != word_before
            labels_of_tokens.append(tags[word] if is_first else IGNORED)
            word_before = word
        examples.append({**row, "labels": labels_of_tokens})
    return examples


def read_questions(path):
    """SQuAD's questions: (question, context, texts of the answers, start of the first)."""
    paragraphs = [p for a in json.loads(path.read_text())["data"] for p in a["paragraphs"]]
    return [
        (
            q["question"],
            p["context"],
            [a["text"] for a in q["answers"]],
            q["answers"][0]["answer_start"],
        )
        for p in paragraphs
        for q in p["qas"]
    ]


def windows(tokenizer, questions, length, stride):
    """Features of the windows of each question; the answer is [CLS] in windows without it."""
    examples = []
    for number, (question, context, texts, first) in enumerate(questions):
        rows = tokenizer(
            question.strip(),
            context,
            truncation="only_second",
            max_length=length,
            stride=length - stride - len(tokenizer(question.strip()).input_ids) - 1,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for k, offsets in enumerate(rows["offset_mapping"]):
            of_context = [part == 1 for part in rows.sequence_ids(k)]
            inside = [i for i, is_context in enumerate(of_context) if is_context]
            starts = [i for i in inside if offsets[i][0] <= first < offsets[i][1]]
            end = first + len(texts[0])
            ends = [i for i in inside if offsets[i][0] < end <= offsets[i][1]]
            is_inside = bool(starts and ends)  # otherwise the answer is [CLS], in another window
            features = {key: rows[key][k] for key in tokenizer.model_input_names}
            features["start_positions"] = starts[0] if is_inside else 0
            features["end_positions"] = ends[0] if is_inside else 0
            examples.append((features, number, inside, offsets))
    return examples


def answer_scores(logits, examples, questions):
    """Exact match and F1 by SQuAD's rules, of the best span of at most 30 tokens of each question."""
    best = {number: (-np.inf, "") for number in range(len(questions))}
    for (start, end), (_, number, inside, offsets) in zip(logits, examples, strict=True):
        for i in sorted(inside, key=lambda k: -start[k])[:20]:
            for j in sorted(inside, key=lambda k: -end[k])[:20]:
                if i <= j < i + 30 and start[i] + end[j] > best[number][0]:
                    text = questions[number][1][offsets[i][0] : offsets[j][1]]
                    best[number] = (start[i] + end[j], text)
    pairs = [(words(best[n][1]), [words(t) for t in q[2]]) for n, q in enumerate(questions)]
    exact = [max(guess == truth for truth in truths) for guess, truths in pairs]
    f1 = [max(overlap(guess, truth) for truth in truths) for guess, truths in pairs]
    return {"f1": float(np.mean(f1)), "exact_match": float(np.mean(exact))}


def words(text):
    """The words of an answer that SQuAD's rules compare."""
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def overlap(guess, truth):
    """F1 of two lists of words."""
    same = sum((collections.Counter(guess) & collections.Counter(truth)).values())
    return 2 * same / (len(guess) + len(truth)) if same else 0.0


def batches(examples, seed, steps):
    """Batches in a new random order in each epoch; a last batch is completed from the next epoch."""
    rng = np.random.default_rng(seed)
    waiting = []
    for _ in range(steps):
        if len(waiting) < BATCH:
            waiting = [*waiting, *rng.permutation(len(examples))]
        yield [examples[index] for index in waiting[:BATCH]]
        waiting = waiting[BATCH:]


def entities(tags, names):
    """The entities of a sentence in BIO tags: (type, first, end)."""
    complete = set()
    begun = None  # the type and the first word of an entity that has not ended
    for place, name in enumerate([*(names[tag] for tag in tags), "O"]):
        kind = name[2:]
        if begun and not (name.startswith("I-") and kind == begun[0]):
            complete.add((*begun, place))
            begun = None
        if name != "O" and not begun:
            begun = (kind, place)
    return complete


def scores(logits, examples, names, metric_names):
    """The metrics of the development set."""
    truths = [example["labels"] for example in examples]
    if "f1" in metric_names and "accuracy" not in metric_names:
        right = 0
        guessed = 0
        true = 0
        for row, tags in zip(logits, truths, strict=True):
            places = [place for place, tag in enumerate(tags) if tag != IGNORED]
            answers = entities(row[places].argmax(-1).tolist(), names)
            expected = entities([tags[place] for place in places], names)
            right += len(answers & expected)
            guessed += len(answers)
            true += len(expected)
        precision = right / max(guessed, 1)
        recall = right / true
        f1 = 2 * right / (guessed + true)
        return {"f1": f1, "precision": precision, "recall": recall}
    rows = np.stack(logits)
    if not names:
        guesses = rows[:, 0]
        pairs = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}
        return {name: float(pair(guesses, truths)[0]) for name, pair in pairs.items()}
    guesses = rows.argmax(-1)
    results = {"accuracy": metrics.accuracy_score(truths, guesses)}
    if "f1" in metric_names:
        results["f1"] = metrics.f1_score(truths, guesses)
    if "matthews" in metric_names:
        results["matthews"] = metrics.matthews_corrcoef(truths, guesses)
    return {name: float(value) for name, value in results.items()}


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
        loss = model(**collate(rows).to(DEVICE)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


@torch.inference_mode()
def evaluated(model, collate, examples):
    """The logits of each example."""
    model.eval()
    order = sorted(range(len(examples)), key=lambda index: len(examples[index]["input_ids"]))
    logits_of_examples = {}
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        outputs = model(**collate([examples[index] for index in rows]).to(DEVICE))
        if "logits" in outputs:
            logits = outputs.logits
        else:
            logits = torch.stack([outputs.start_logits, outputs.end_logits], dim=1)
        logits_of_examples.update(zip(rows, logits.cpu().numpy(), strict=True))
    return [logits_of_examples[index] for index in range(len(examples))]


def prepared(settings, tokenizer):
    """Examples for training and evaluation, a class of models, its keywords, and a function of the logits."""
    data = pathlib.Path(settings["data"])
    names = list(settings["labels"])
    if settings["dev"] == "dev.json":
        length = settings["flags"]["max_seq_length"]
        stride = settings["flags"]["doc_stride"]
        dev_questions = read_questions(data / "dev.json")
        train_windows = windows(tokenizer, read_questions(data / "train.json"), length, stride)
        dev_windows = windows(tokenizer, dev_questions, length, stride)
        train = [features for features, *_ in train_windows]
        dev = [features for features, *_ in dev_windows]
        kind = transformers.AutoModelForQuestionAnswering
        collate = transformers.DataCollatorWithPadding
        score = functools.partial(answer_scores, examples=dev_windows, questions=dev_questions)
        return train, dev, kind, collate, {}, score
    if settings["columns"]:
        sets = [read_texts(data / name, settings) for name in ("train.tsv", settings["dev"])]
        kind = transformers.AutoModelForSequenceClassification
        collate = transformers.DataCollatorWithPadding
    else:
        sets = [read_sentences(data / name, names) for name in ("train.conll", settings["dev"])]
        kind = transformers.AutoModelForTokenClassification
        collate = transformers.DataCollatorForTokenClassification
    train, dev = (encoded(tokenizer, *pair, settings) for pair in sets)
    outputs = {"num_labels": len(names) or 1}
    score = functools.partial(scores, examples=dev, names=names, metric_names=settings["metrics"])
    return train, dev, kind, collate, outputs, score


def main(path):
    """Trains and evaluates a model with the settings of a file."""
    settings = json.loads(pathlib.Path(path).read_text())
    transformers.set_seed(settings["seed"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    train, dev, kind, collate, outputs, score = prepared(settings, tokenizer)
    config = transformers.AutoConfig.from_pretrained(settings["model"], **outputs)
    if settings["random"]:
        model = kind.from_config(config)
    else:
        model = kind.from_pretrained(settings["model"], config=config, dtype=torch.float32)
    model = model.to(DEVICE)
    collate = collate(tokenizer)
    steps = max(1, round(settings["epochs"] * len(train) / BATCH))
    losses = trained(model, collate, train, settings, steps)
    results = {"eval": score(evaluated(model, collate, dev)), "step": steps}
    folder = pathlib.Path(settings["output_dir"])
    means = [float(np.mean(losses[k : k + 10])) for k in range(0, len(losses), 10)]
    lines = [json.dumps({"loss": loss}) + "\n" for loss in means]
    (folder / "metrics.jsonl").write_text("".join(lines))
    (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
