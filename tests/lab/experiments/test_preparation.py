"""What rows share: texts, vocabulary, records and the development set."""

from albert_tf.data.reading import first_batches
from albert_tf.data.record_set import find_pretraining_records
from albert_tf.text.tokenizer import Tokenizer
from lab.experiments.preparation import Workspace
from tests.helpers import passage


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
