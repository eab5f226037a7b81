"""Made-up pairs, scored pairs and triplets of texts."""

import numpy as np
import pytest

from tests.helpers import NAMES, sentence, write_files


@pytest.fixture(scope="session")
def embedding_files(tmp_path_factory):
    """Files of questions with texts that share a name; the score is the number of shared names."""
    rng = np.random.default_rng(5)
    folder = tmp_path_factory.mktemp("embedding")
    names = NAMES.split()
    found = {}
    for split, size in (("train", 26), ("dev", 14)):
        pairs = ["q\tp"]
        scored = ["a\tb\tscore"]
        triplets = ["q\tp\tn"]
        for row in range(size):
            first = names[row % 10]
            second = names[(row + 3) % 10]
            question = f"who saw {first} ?"
            right = f"{first} {sentence(rng, 2, 9)}"
            wrong = f"{second} {sentence(rng, 1, 12)}"
            pairs.append(f"{question}\t{right}")
            triplets.append(f"{question}\t{right}\t{wrong}")
            shared = len({*right.split()} & {*wrong.split()} & {*names})
            scored.append(f"{right}\t{wrong}\t{shared + rng.uniform():.3f}")
        for name, lines in (("pairs", pairs), ("scored", scored), ("triplets", triplets)):
            found[f"{split}_{name}.tsv"] = "\n".join(lines) + "\n"
    found["corpus.txt"] = "red river\n\nblue house\nred river\n"
    write_files(folder, found)
    return folder
