"""Tags of words, the entities that they mark, and scores of entities.

A tag is `O`, or a letter followed by a type of entity. The scheme of the data determines the letters: IOB1, IOB2 (BIO),
or BIOES, which is also called BILOU or BMES. The rule of conlleval, implemented by seqeval, finds the entities in all
schemes. Training uses IOB2, whatever scheme the file has.
"""

import re
from collections.abc import Iterable, Sequence

# Functions that need seqeval import it, because it loads scikit-learn, which takes a second.

OUTSIDE = "O"
_TAG = re.compile(r"([BIESLUM])-(.+)")  # letter and type
_OTHER_LETTERS = {"L": "E", "U": "S", "M": "I"}  # of BILOU and BMES, as those of BIOES

Tags = Sequence[str]


def is_tag(word: str) -> bool:
    """Whether a word of a file is a tag."""
    return word == OUTSIDE or _TAG.fullmatch(word) is not None


def letter_and_type(label: str) -> tuple[str, str]:
    """A label's letter (B, I, E or S) and type; ("O", "") for `O`. A label without a letter is treated as I."""
    if label == OUTSIDE:
        return OUTSIDE, ""

    match = _TAG.fullmatch(label)
    if match is None:
        return "I", label

    letter, type = match.groups()
    return _OTHER_LETTERS.get(letter, letter), type


def of_words(tags: Tags) -> list[str]:
    """The tags of --tag_scheme=words as tags of entities, each of which is one word."""
    return [f"B-{tag}" for tag in tags]


def entities_of(tags: Tags) -> list[tuple[str, int, int]]:
    """Type, first and last word of each entity by conlleval's rule: I-PER I-PER O B-LOC -> (PER, 0, 1), (LOC, 3, 3).

    A word continues the entity of the word before it if it has the same type, a letter that does not begin an entity
    (I, E), and follows one that does not end it (B, I); every other tag but `O` begins an entity.

    Source: conlleval; `tests/tasks/tagging/test_entities.py` compares with seqeval.
    """
    entities: list[tuple[str, int, int]] = []
    previous_letter = OUTSIDE
    previous_type = ""
    for word, tag in enumerate(tags):
        letter, type = letter_and_type(tag)
        continues = letter in ("I", "E") and previous_letter in ("B", "I") and type == previous_type
        if continues:
            _, first, _ = entities[-1]
            entities[-1] = (type, first, word)
        elif letter != OUTSIDE:
            entities.append((type, word, word))
        previous_letter = letter
        previous_type = type
    return entities


def to_iob2(tags: Tags) -> list[str]:
    """The tags of the same entities in IOB2: B at the first word of an entity, I at its other words."""
    iob2_tags = [OUTSIDE] * len(tags)
    for type, first, last in entities_of(tags):
        iob2_tags[first] = f"B-{type}"
        for word in range(first + 1, last + 1):
            iob2_tags[word] = f"I-{type}"
    return iob2_tags


def iob2_labels(types: Iterable[str]) -> tuple[str, ...]:
    """All labels for some types of entities: {PER, LOC} -> O, B-LOC, I-LOC, B-PER, I-PER."""
    labels = [OUTSIDE]
    for type in sorted(types):
        labels.append(f"B-{type}")
        labels.append(f"I-{type}")
    return tuple(labels)


def continuations(labels: Sequence[str]) -> list[int]:
    """For each label, the index of the label of the next word of the same entity: O, B-LOC, I-LOC -> 0, 2, 2.

    A label whose type has no label I, such as `O`, is followed by itself.
    """
    index_of = {label: index for index, label in enumerate(labels)}
    next_indices = []
    for index, label in enumerate(labels):
        _, type = letter_and_type(label)
        next_indices.append(index_of.get(f"I-{type}", index))
    return next_indices


def scores(true: Sequence[Tags], predicted: Sequence[Tags]) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 of entities: of each type, "micro avg" of all entities, "macro avg" of the types.

    An entity is right if its type, its first and its last word are. A score without a value is 0. Without entities, the
    result is empty.

    Args:
      true: the tags of the words of each sentence.
      predicted: predicted tags of the same words.

    Source: seqeval (`classification_report`), which gives the same scores as conlleval.
    """
    true_tags = [_canonical(tags) for tags in true]
    predicted_tags = [_canonical(tags) for tags in predicted]

    # seqeval cannot average if there are no types.
    different_tags = {tag for tags in true_tags + predicted_tags for tag in tags}
    if different_tags <= {OUTSIDE}:
        return {}

    from seqeval.metrics import classification_report

    report = classification_report(true_tags, predicted_tags, zero_division=0, output_dict=True)
    return {
        name: {score: float(value) for score, value in scores_of_name.items()}
        for name, scores_of_name in report.items()
    }


def _canonical(tags: Tags) -> list[str]:
    """The tags with the letters that seqeval uses."""
    canonical_tags = []
    for tag in tags:
        letter, type = letter_and_type(tag)
        canonical_tags.append(f"{letter}-{type}" if type else letter)
    return canonical_tags
