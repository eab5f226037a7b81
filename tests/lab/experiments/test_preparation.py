"""What rows share: texts, vocabulary, records and the development set."""

import pathlib

from albert_tf.data.reading import first_batches
from albert_tf.data.record_set import find_pretraining_records
from lab.experiments.development_set import TEXT_FILE
from tests.helpers import documents_in, passage


def test_the_development_set_has_every_passage_once_and_records_of_every_task(workspace):
    documents = documents_in(pathlib.Path(workspace.intrinsic(), TEXT_FILE))
    assert sorted(map(" ".join, documents)) == list(map(passage, range(20)))
    for task in ("none", "nsp", "sop"):
        record_set = find_pretraining_records(f"{workspace.intrinsic()}/{task}", "x")
        assert record_set.num_examples >= 20 and record_set.metadata["sentence_task"] == task
        assert record_set.metadata["single_segment"] == "clean"
        batches = first_batches(record_set, record_set.schema, 64)
        labels = {
            tuple(label) for batch in batches for label in batch["next_sentence_labels"].numpy()
        }
        assert {*sum(labels, ())} == ({0} if task == "none" else {0, 1}), task
