"""Fixed data: random sentences of words of a vocabulary, and small data of every task."""

import json
import pathlib
import random
from collections.abc import Iterator

import sentencepiece

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TINY = ROOT / "models" / "albert-tiny-docs"
MINILM = ROOT / "models" / "albert-minilm-l6"
LONG = ROOT / "models" / "albert-minilm-l6-long"
SENTENCEPIECE = f"--spm_model_file={TINY / 'spiece.model'}"
WORDPIECE = f"--vocab_file={MINILM / 'vocab.txt'}"

DIFFICULT_LINES = """It rains. It is wet.
  two  spaces\u00a0and a no-break space
Caf\u00e9 na\u00efve co\u00f6perate \u1e9e
\uff21\uff22\uff23 \u2460 \ufb01ne
\u4e2d\u6587 and \u65e5\u672c\u8a9e
1,234.56 $5 ``quoted'' \u201ccurly\u201d
e\u0301\u0327 \u200bzero
The [MASK] of the [SEP] is <pad> here.
Don't, won't; state-of-the-art (U.S.A.) e.g. a@b.org
\U0001f600 \u0645\u0631\u062d\u0628\u0627 \u041f\u0440\u0438\u0432\u0435\u0442 \u0928\u092e\u0938\u094d\u0924\u0947
"""

PROSE = """Dr. Smith went to Washington, D.C. on Jan. 5. He was late! Was he, e.g., stuck in traffic?
"It rained," she said. "We waited." Then (as always) they left. It cost $3.50, i.e. less than 4.0.

A heading
The second document begins here. See Fig. 3 and No. 7 for details. J. R. R. Tolkien wrote it... or not.
It ends with an ellipsis\u2026 And with a last sentence.
"""


def words(seed: int, number: int) -> list[str]:
    """Random words of the vocabulary, the frequent ones more often."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(TINY / "spiece.model"))
    vocabulary = []
    for token_id in range(13, 1500):
        token = processor.id_to_piece(token_id)
        if token.startswith("\u2581") and token[1:].isalpha():
            vocabulary.append(token[1:])
    weights = [1 / (rank + 5) for rank in range(len(vocabulary))]
    return random.Random(seed).choices(vocabulary, weights, k=number)


def sentences(seed: int, number: int) -> list[str]:
    """Random sentences of 3 to 25 words."""
    rng = random.Random(seed)
    source: Iterator[str] = iter(words(seed, 25 * number))
    lines = []
    for _ in range(number):
        length = rng.randint(3, 25)
        lines.append(" ".join(next(source) for _ in range(length)))
    return lines


def corpus(seed: int, documents: int) -> str:
    """Documents of 12 random sentences, with a blank line after each."""
    lines = [f"{line}." for line in sentences(seed, 12 * documents)]
    parts = ["\n".join(lines[first : first + 12]) for first in range(0, len(lines), 12)]
    return "\n\n".join(parts) + "\n"


def write_task_data(folder: pathlib.Path) -> None:
    """Writes training and development data of every task: tables, CoNLL, SQuAD and RACE."""
    folder.mkdir(exist_ok=True)
    texts = sentences(4, 60)
    _write_split(folder, "train", texts[:40])
    _write_split(folder, "dev", texts[40:])


def _write_split(folder: pathlib.Path, split: str, texts: list[str]) -> None:
    labels = ["text\tlabel"]
    scores = ["a\tb\tscore"]
    topics = ["text\tlabel"]
    tagged = []
    for text in texts:
        parts = text.split()
        half = len(parts) // 2
        labels.append(f"{text}\t{'yes' if 'is' in parts else 'no'}")
        scores.append(f"{' '.join(parts[:half])}\t{' '.join(parts[half:])}\t{len(parts) / 5}")
        topics.append(f"{text}\t{';'.join(word for word in ('the', 'of', 'is') if word in parts)}")
        for word in parts:
            tagged.append(f"{word} {'B-LONG' if len(word) > 6 else 'O'}")
        tagged.append("")
    tables = {"labels.tsv": labels, "scores.tsv": scores, "topics.tsv": topics, "conll": tagged}
    for ending, lines in tables.items():
        (folder / f"{split}.{ending}").write_text("\n".join(lines) + "\n")
    _write_squad(folder / f"{split}.json", split, texts)
    _write_race(folder / "RACE" / split, texts[:12])


def _write_squad(path: pathlib.Path, split: str, texts: list[str]) -> None:
    paragraphs = []
    for number, text in enumerate(texts):
        parts = text.split()
        is_impossible = number % 4 == 3
        answers = []
        if not is_impossible:
            answers = [{"text": parts[2], "answer_start": len(" ".join(parts[:2])) + 1}]
        question = {
            "id": f"{split}-{number}",
            "question": f"what follows {parts[1]}?",
            "answers": answers,
            "is_impossible": is_impossible,
        }
        paragraphs.append({"context": text, "qas": [question]})
    content = {"version": "2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(content))


def _write_race(folder: pathlib.Path, texts: list[str]) -> None:
    for number, text in enumerate(texts):
        parts = text.split()
        page = {
            "id": f"{number}.txt",
            "article": text,
            "questions": [f"{parts[0]} _"],
            "options": [[parts[0], parts[1], parts[2], "the end"]],
            "answers": ["ABCD"[number % 4]],
        }
        level = ("middle", "high")[number % 2]
        (folder / level).mkdir(parents=True, exist_ok=True)
        (folder / level / f"{number}.txt").write_text(json.dumps(page))
