"""Trains with sentence-transformers as `albert-tf embed` does: the same model, data, batch size, steps and rates.

`__main__.py` runs it in an environment with sentence-transformers: library.py '{"model": ..., ...}' prints JSON.
"""

import csv
import json
import sys
import time


def rows_of(path: str) -> list[list[str]]:
    """The rows of a table, without its header."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]


def trained(values: dict):
    """The model after its training, and the seconds of the steps."""
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer, losses

    torch.set_num_threads(values["threads"])
    model = SentenceTransformer(values["model"], device="cpu")
    loss = losses.MultipleNegativesRankingLoss(model, scale=20.0)
    named = list(model.named_parameters())
    free = [value for name, value in named if "bias" in name or "Norm" in name or "norm" in name]
    rest = [value for _, value in named if not any(value is other for other in free)]
    groups = [{"params": rest, "weight_decay": 0.01}, {"params": free, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=values["learning_rate"], eps=1e-6)
    train, steps, size = rows_of(values["train_file"]), values["steps"], values["batch"]
    rng, warmup = np.random.default_rng(values["seed"]), int(0.1 * values["steps"])
    epochs = 1 + steps * size // len(train)
    order = np.concatenate([rng.permutation(len(train)) for _ in range(epochs)])
    model.train()
    started = time.monotonic()
    for step in range(steps):
        factor = (step + 1) / warmup if step < warmup else 1 - step / steps
        for group in optimizer.param_groups:
            group["lr"] = values["learning_rate"] * factor
        batch = [train[index] for index in order[step * size : (step + 1) * size]]
        features = [model.preprocess([row[column] for row in batch]) for column in (0, 1)]
        optimizer.zero_grad()
        loss(features, None).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.monotonic() - started
    return model.eval(), seconds


def main(values: dict) -> dict:
    """The seconds of the steps, and recall@10 of the questions among all paragraphs."""
    from sentence_transformers import util

    model, seconds = trained(values)
    with open(values["corpus_file"], encoding="utf-8") as file:
        corpus = list(dict.fromkeys(file.read().splitlines()))
    places = {text: place for place, text in enumerate(corpus)}
    relevant: dict[str, set[int]] = {}
    for question, paragraph in rows_of(values["eval_file"]):
        relevant.setdefault(question, set()).add(places[paragraph])
    found = util.semantic_search(model.encode([*relevant]), model.encode(corpus), top_k=10)
    recall = [
        len(right & {hit["corpus_id"] for hit in hits}) / len(right)
        for right, hits in zip(relevant.values(), found, strict=True)
    ]
    return {"seconds": seconds, "recall_at_10": sum(recall) / len(recall)}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
