"""Trains with sentence-transformers: the same model, data, batches of the same size, steps and rates.

python lab/embeddings/library.py '{"model": ..., "train_file": ..., "eval_file": ..., ...}'

Runs in an environment with sentence-transformers, datasets and accelerate; prints JSON.
"""

import csv
import json
import sys
import time


def main(values: dict) -> dict:
    """Scores and seconds; `values` are described by `Lab.library` in `__main__.py`."""
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer, losses, util

    torch.manual_seed(values["seed"])
    torch.set_num_threads(values["threads"])
    model = SentenceTransformer(values["model"], device="cpu")
    model.max_seq_length = values["max_seq_length"]

    def rows(path: str) -> list[dict]:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))

    train = rows(values["train_file"])
    loss = losses.MultipleNegativesRankingLoss(model, scale=20.0)
    decayed = [p for n, p in model.named_parameters() if "bias" not in n and "Norm" not in n]
    other = [p for n, p in model.named_parameters() if "bias" in n or "Norm" in n]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": other, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=values["learning_rate"], eps=1e-6)
    steps, warmup = values["steps"], int(0.1 * values["steps"])
    rng, size, first, second = (
        np.random.default_rng(values["seed"]),
        values["batch"],
        *values["columns"],
    )
    order = np.concatenate(
        [rng.permutation(len(train)) for _ in range(1 + steps * size // len(train))]
    )
    started = time.monotonic()
    model.train()
    for step in range(steps):
        rate = (step + 1) / warmup if step < warmup else 1 - step / steps
        for group in optimizer.param_groups:
            group["lr"] = values["learning_rate"] * rate
        batch = [train[index] for index in order[step * size : (step + 1) * size]]
        features = [
            {
                k: v
                for k, v in model.tokenize([row[name] for row in batch]).items()
                if torch.is_tensor(v)
            }
            for name in (first, second)
        ]
        optimizer.zero_grad()
        loss(features, torch.zeros(len(batch))).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.monotonic() - started
    model.eval()
    evaluated = rows(values["eval_file"])
    with open(values["corpus_file"], encoding="utf-8") as file:
        corpus = list(dict.fromkeys([row[second] for row in evaluated] + file.read().splitlines()))
    place = {text: index for index, text in enumerate(corpus)}
    queries: dict[str, set[int]] = {}
    for row in evaluated:
        queries.setdefault(row[first], set()).add(place[row[second]])
    found = util.semantic_search(model.encode([*queries]), model.encode(corpus), top_k=10)
    hits = [
        len(right & {hit["corpus_id"] for hit in hits}) / len(right)
        for right, hits in zip(queries.values(), found)
    ]
    return {"seconds": seconds, "recall_at_10": sum(hits) / len(hits)}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
