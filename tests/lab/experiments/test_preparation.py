"""What rows share: texts, vocabulary, records and the development set."""

import json
import pathlib
import shutil

import pytest

from albert_tf.data.reading import first_batches
from albert_tf.data.record_set import find_pretraining_records
from albert_tf.text.tokenizer import Tokenizer
from lab.experiments.preparation import Workspace
from tests.helpers import documents_in, passage


def sentences_of(workspace: Workspace, task: str) -> list[tuple[int, list[str], list[str]]]:
    """Label and the sentences of both segments of every example of the development set, masks filled in."""
    folder = f"{workspace.intrinsic()}/{task}"
    record_set = find_pretraining_records(folder, "x")
    tokenizer = Tokenizer.from_file(workspace.vocabulary())
    found = []
    for batch in first_batches(record_set, record_set.schema, 64):
        rows = {name: value.numpy() for name, value in batch.items()}
        for index, ids in enumerate(rows["input_ids"]):
            whole = ids.copy()
            real = rows["masked_lm_weights"][index] > 0
            whole[rows["masked_lm_positions"][index][real]] = rows["masked_lm_ids"][index][real]
            used = rows["input_mask"][index] == 1
            second = rows["segment_ids"][index] == 1
            parts = [
                tokenizer.decode([int(id) for id in whole[used & chosen] if id > 4]).split()
                for chosen in (~second, second)
            ]
            found.append((int(rows["next_sentence_labels"][index, 0]), *parts))
    return found


def test_the_development_set_has_pairs_in_order_from_elsewhere_and_swapped(workspace):
    whole = [word for number in range(20) for word in passage(number).split()]
    for task in ("none", "nsp", "sop"):
        examples = sentences_of(workspace, task)
        assert len(examples) >= 20
        labels = [label for label, *_ in examples]
        assert set(labels) == ({0} if task == "none" else {0, 1}), task
        for label, first, second in examples:
            passages = {word[0] for word in (*first, *second) if "a" <= word[0] < "u"}
            assert len(passages) == (2 if task == "nsp" and label else 1), (task, label)
            if task == "sop" and label:
                first, second = second, first
            if not (task == "nsp" and label):
                joined = "".join([*first, *second])
                assert joined in "".join(whole), (task, label, joined)


@pytest.fixture(scope="module")
def without_passages(micro, data_dir, tmp_path_factory) -> Workspace:
    """Shared data of a folder that holds text alone."""
    folder = tmp_path_factory.mktemp("text_alone")
    shutil.copytree(data_dir / "text", folder / "text")
    return Workspace(micro[0], str(folder), str(tmp_path_factory.mktemp("work")))


def source_of(folder: str) -> pathlib.Path:
    """The text that a folder of records was made of."""
    metadata = json.loads(pathlib.Path(folder, "metadata.json").read_text())
    ((path, _),) = (described.values() for described in metadata["input_files"])
    return pathlib.Path(path)


def test_a_probe_is_not_scored_on_what_it_was_fitted_to(without_passages):
    held_out = documents_in(pathlib.Path(without_passages.text("standard")[1]))
    for task in ("nsp", "sop"):
        dev = documents_in(source_of(f"{without_passages.intrinsic()}/{task}"))
        probe = documents_in(source_of(without_passages.probe(task)))
        assert dev and probe
        assert not [document for document in dev if document in probe]
        assert sorted(dev + probe) == sorted(held_out)
