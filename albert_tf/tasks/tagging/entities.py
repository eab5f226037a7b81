"""Tags of words, the entities that they mark, and scores of entities.

A tag is `O`, or a letter followed by a type of entity. The scheme of the data determines the letters: IOB1, IOB2 (BIO),
or BIOES, which is also called BILOU or BMES. The rule of conlleval, implemented by seqeval, finds the entities in all
schemes. Training uses IOB2, whatever scheme the file has.
"""

import re
from collections.abc import Iterable, Sequence

# Functions that need seqeval import it, because it loads scikit-learn, which takes a second.

OUTSIDE = "O"
_TAG = re.compile(r"([BIESLUM])-(.+)")
_OTHER_LETTERS = {"L": "E", "U": "S", "M": "I"}

Tags = Sequence[str]


def is_tag(word: str) -> bool:
    """Whether a word of a file is a tag."""
    return word == OUTSIDE or _TAG.fullmatch(word) is not None


def letter_and_type(label: str) -> tuple[str, str]:
    """A label's letter (B, I, E or S) and type; ("O", "") for `O`. A label without a letter is treated as I."""
    if label == OUTSIDE:
        return OUTSIDE, ""
    if not (match := _TAG.fullmatch(label)):
        return "I", label
    return _OTHER_LETTERS.get(match[1], match[1]), match[2]


def of_words(tags: Tags) -> list[str]:
    """The tags of --tag_scheme=words as tags of entities, each of which is one word."""
    return [f"B-{tag}" for tag in tags]


def entities_of(tags: Tags) -> list[tuple[str, int, int]]:
    """Type, first and last word of each entity by conlleval's rule: I-PER I-PER O B-LOC -> (PER, 0, 1), (LOC, 3, 3)."""
    from seqeval.metrics.sequence_labeling import get_entities

    return get_entities(_canonical(tags))


def to_iob2(tags: Tags) -> list[str]:
    """The tags of the same entities in IOB2: B at the first word of an entity, I at its other words."""
    new = [OUTSIDE] * len(tags)
    for type, first, last in entities_of(tags):
        new[first : last + 1] = [f"B-{type}"] + [f"I-{type}"] * (last - first)
    return new


def iob2_labels(types: Iterable[str]) -> tuple[str, ...]:
    """All labels for some types of entities: `O`, then B and I of each type, in the given order of types."""
    return (OUTSIDE, *(f"{letter}-{type}" for type in sorted(types) for letter in "BI"))


def continuations(labels: Sequence[str]) -> list[int]:
    """For each label, the index of the label of the next word of the same entity."""
    indices = {label: index for index, label in enumerate(labels)}
    types = [letter_and_type(label)[1] for label in labels]
    return [indices.get(f"I-{type}", index) for index, type in enumerate(types)]


def scores(true: Sequence[Tags], predicted: Sequence[Tags]) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 of entities: of each type, "micro avg" of all entities, "macro avg" of the types.

    An entity is right if its type, its first and its last word are. A score without a value is 0. Source: seqeval
    (`classification_report`), which gives the same scores as conlleval.
    """
    true, predicted = list(map(_canonical, true)), list(map(_canonical, predicted))
    if not any(tag != OUTSIDE for sentence in (*true, *predicted) for tag in sentence):
        return {}  # seqeval cannot average if there are no types
    from seqeval.metrics import classification_report

    rows = classification_report(true, predicted, zero_division=0, output_dict=True)
    return {name: {key: float(value) for key, value in row.items()} for name, row in rows.items()}


def _canonical(tags: Tags) -> list[str]:
    """The tags with the letters that seqeval uses."""
    return ["-".join(filter(None, letter_and_type(tag))) for tag in tags]
