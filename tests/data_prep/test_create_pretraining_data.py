"""Text -> records: what TensorFlow reads, equality over workers and interruptions, wrong input."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.data.record_formats import record_writer
from albert_tf.data_prep.pretraining import blocks, plan, shards
from albert_tf.text.tokenizer import Tokenizer
from tests.data.test_pretraining_examples import COMPILED
from tests.helpers import made_up_text, run_script


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(made_up_text(150, seed=2))
    return str(path)


@pytest.fixture
def make(make_records, tmp_path, text_file):
    """Makes full records of two passes through `text_file` or another text; returns their folder."""

    def records(folder="records", text=None, **changes):
        input_file = text_file
        if text is not None:
            input_file = str(tmp_path / "input.txt")
            pathlib.Path(input_file).write_bytes(text if isinstance(text, bytes) else text.encode())
        defaults = {"input_file": input_file, "dupe_factor": 2, "record_format": "full"}
        return make_records(folder, **{**defaults, **changes})

    return records


def contents(folder):
    """Names and bytes of all files but the lock's."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def records_of(folder):
    return sorted(folder.glob("*.tfrecord*"))


def metadata_of(folder):
    return json.loads((folder / "metadata.json").read_text())


def read(folder, max_seq_length=64, num_slots=10):
    """All features, read as the original's training script does: name -> [examples, values]."""
    of_tokens = ["input_ids", "input_mask", "segment_ids", "token_boundary"]
    int64 = dict.fromkeys(of_tokens, max_seq_length) | {"next_sentence_labels": 1}
    int64 |= dict.fromkeys(["masked_lm_positions", "masked_lm_ids"], num_slots)
    schema = {name: tf.io.FixedLenFeature([size], tf.int64) for name, size in int64.items()}
    schema["masked_lm_weights"] = tf.io.FixedLenFeature([num_slots], tf.float32)
    files = [str(path) for path in records_of(folder)]
    records = list(tf.data.TFRecordDataset(files).as_numpy_iterator())
    return {name: values.numpy() for name, values in tf.io.parse_example(records, schema).items()}


def tokens_of(features, row):
    """The tokens of an example before masking, without [CLS] and [SEP]: A, B."""
    ids = features["input_ids"][row].copy()
    num_masked = int(features["masked_lm_weights"][row].sum())
    ids[features["masked_lm_positions"][row, :num_masked]] = features["masked_lm_ids"][
        row, :num_masked
    ]
    length = features["input_mask"][row].sum()
    segment = features["segment_ids"][row]
    first_b = int(np.argmax(segment))
    return ids[1 : first_b - 1].tolist(), ids[first_b : length - 1].tolist()


def test_original_schema_and_structure(make, spm_model_file):
    folder = make()
    features = read(folder)
    tokenizer = Tokenizer.from_file(spm_model_file)
    ids, mask, segments = (features[n] for n in ("input_ids", "input_mask", "segment_ids"))
    lengths = mask.sum(axis=1)
    assert (mask == (np.arange(64) < lengths[:, None])).all()
    assert (ids[:, 0] == tokenizer.cls_id).all()
    assert (ids[np.arange(len(ids)), lengths - 1] == tokenizer.sep_id).all()
    assert ((segments == 1).sum(axis=1) >= 2).all() and (np.diff(segments * mask) >= -1).all()
    assert (ids[mask == 0] == 0).all() and (features["token_boundary"][mask == 0] == 0).all()
    weights = features["masked_lm_weights"]
    # Sorted, as the original's; weights are 1 for what is to be predicted.
    assert (np.diff(weights) <= 0).all()
    positions = np.where(weights > 0, features["masked_lm_positions"], 1000)
    assert (np.diff(positions)[weights[:, 1:] > 0] > 0).all()
    wanted = [min(10, max(1, round(length * 0.15))) for length in lengths.tolist()]
    assert (weights.sum(axis=1) <= wanted).all()
    assert np.mean(weights.sum(axis=1) == wanted) > 0.9


def test_metadata_counts_what_the_records_hold(make, text_file, spm_model_file):
    folder = make(num_shards=3)
    features = read(folder)
    metadata = metadata_of(folder)
    text = pathlib.Path(text_file).read_text()
    documents = [document.split("\n") for document in text.split("\n\n")]
    tokenizer = Tokenizer.from_file(spm_model_file)
    sentences = sum(documents, [])
    counts = metadata["counts"]
    assert counts["documents"] == len(documents)
    assert counts["sentences"] == len(sentences)
    ids = np.concatenate(tokenizer.encode_batch(sentences))
    assert (counts["tokens"], counts["unknown_tokens"]) == (len(ids), (ids == 1).sum())
    assert counts["examples"] == len(features["input_ids"])
    assert counts["label_1"] == features["next_sentence_labels"].sum()
    assert counts["label_0"] + counts["label_1"] == counts["examples"]
    assert counts["masked_tokens_in_records"] == features["masked_lm_weights"].sum()
    assert metadata["spm_sha256"] == tokenizer.sha256 and metadata["vocab_size"] == 200
    assert metadata["max_seq_length"] == 64 and metadata["max_predictions_per_seq"] == 10
    assert metadata["sentence_task"] == "sop"
    assert metadata["record_format"] == "full"
    assert metadata["masking"] == "static" and "vocabulary" not in metadata
    names = [f"pretraining-{shard:05d}-of-00003.tfrecord" for shard in range(3)]
    assert [shard["file"] for shard in metadata["shards"]] == names
    assert set(contents(folder)) == {*names, "metadata.json"}
    for shard in metadata["shards"]:
        path = folder / shard["file"]
        assert shard["bytes"] == path.stat().st_size
        assert shard["examples"] == sum(1 for _ in tf.data.TFRecordDataset(str(path)))


def test_tokens_are_those_of_the_text_in_order_or_swapped(make, text_file, spm_model_file):
    features = read(make(dupe_factor=1, single_segment="clean"))
    tokenizer = Tokenizer.from_file(spm_model_file)
    text = pathlib.Path(text_file).read_text()
    documents = [
        " ".join(str(id) for ids in tokenizer.encode_batch(document.split("\n")) for id in ids)
        for document in text.split("\n\n")
    ]
    all_documents = "\n" + "\n".join(f" {document} " for document in documents)
    for row, label in enumerate(features["next_sentence_labels"][:, 0]):
        a, b = tokens_of(features, row)
        first, second = (b, a) if label else (a, b)
        for segment in (first, second):
            assert f" {' '.join(map(str, segment))} " in all_documents
        if len(a) + len(b) < 61:  # not cut, so they touch
            assert f" {' '.join(map(str, first + second))} " in all_documents
    assert 0.4 < features["next_sentence_labels"].mean() < 0.6


def test_every_pass_has_other_pairs_and_masks_and_is_spread_over_the_shards(make, spm_model_file):
    # A document that fits one example, so that each pass gives one: its two sentences in either order.
    sentences = ["Xyxyxy miter unsel dori kalo pan.", "Dori pan eth miter lo lo sel."]
    text = "\n".join(sentences) + "\n\n" + made_up_text(30, 3)
    folder = make(
        text=text, dupe_factor=40, num_shards=8, max_predictions_per_seq=8, short_seq_prob=0.0
    )
    wanted = sorted(
        ids.tolist() for ids in Tokenizer.from_file(spm_model_file).encode_batch(sentences)
    )
    features = read(folder, num_slots=8)
    sizes = [shard["examples"] for shard in metadata_of(folder)["shards"]]
    shard_of_row = np.repeat(np.arange(8), sizes)
    copies = [row for row in range(sum(sizes)) if sorted(tokens_of(features, row)) == wanted]
    assert len(copies) == 40
    assert len({tuple(features["input_ids"][row].tolist()) for row in copies}) > 30
    assert 10 < features["next_sentence_labels"][copies].sum() < 30
    assert len(set(shard_of_row[copies].tolist())) > 5


def test_seeds_and_tasks_change_the_examples(make):
    first, second = (read(make(str(seed), random_seed=seed)) for seed in (1, 2))
    a, b = (map(tuple, found["input_ids"].tolist()) for found in (first, second))
    assert len({*a} & {*b}) < 10
    for task, share in (("sop", 0.5), ("nsp", 0.5), ("none", 0.0)):
        found = read(make(task, sentence_task=task, single_segment="clean"))
        assert abs(found["next_sentence_labels"].mean() - share) <= (0.06 if share else 0)


def test_workers_change_nothing(make):
    expected = contents(make("one", num_shards=4))
    assert contents(make("two", num_shards=4, num_workers=2)) == expected


COMPILED_FUNCTIONS = """
import importlib, sys
import numba
from albert_tf.data_prep import create_pretraining_data as program
from albert_tf.data_prep.engines import choice

def signatures():
    modules = map(importlib.import_module, {modules})
    functions = [function for module in modules for function in vars(module).values()]
    kind = numba.core.dispatcher.Dispatcher
    return {{str(function): function.signatures for function in functions if isinstance(function, kind)}}

class Workers(choice.Workers):
    def __enter__(self):
        global before
        before = signatures()
        return super().__enter__()

choice.Workers = Workers
for settings in {settings}:
    program.main(program.PretrainingDataSettings(**settings))
    assert before == signatures() and any(before.values()), (before, signatures())
"""


def test_everything_is_compiled_before_workers_start(tmp_path, text_file, spm_model_file):
    """Or each of them would compile it."""
    values = {"input_file": text_file, "spm_model_file": spm_model_file, "num_workers": 1}
    kinds = [("packed", "dynamic"), ("full", "static"), ("packed", "static")]
    settings = [
        {"output_dir": f"{tmp_path}/{masking}_{kind}", "record_format": kind, "masking": masking}
        for kind, masking in kinds
    ]
    settings = [values | each for each in settings]
    code = COMPILED_FUNCTIONS.format(modules=COMPILED, settings=settings)
    done = run_script("-c", code)
    assert done.returncode == 0, done.stderr


def test_many_blocks_and_shards_hold_the_same_documents(make, monkeypatch):
    whole = metadata_of(make("whole"))["counts"]
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(plan, "SHARD_BYTES", 40_000)
    monkeypatch.setattr(plan, "UNITS_OF_SHARD", 30)
    metadata = metadata_of(make("blocks", dupe_factor=5))
    assert metadata["counts"]["blocks"] > 10 and len(metadata["shards"]) > 20
    for key in ("documents", "sentences", "tokens"):
        assert metadata["counts"][key] == whole[key]
    sizes = [shard["examples"] for shard in metadata["shards"]]
    assert sum(sizes) == metadata["counts"]["examples"] and max(sizes) < 2 * min(sizes)


def test_a_shard_may_be_empty(make):
    text = "Kalo miter.\nUn lo.\n\nDori pan.\nLo un.\n\nPan pan.\nLo lo.\n"
    folder = make(text=text, num_shards=6)
    sizes = [shard["examples"] for shard in metadata_of(folder)["shards"]]
    assert 0 in sizes and len(read(folder)["input_ids"]) == sum(sizes) == 6


def interrupt_after(monkeypatch, num_calls):
    """Lets the making of records end after some calls, as with Ctrl C."""
    encode = record_writer.encode_examples
    left = [KeyboardInterrupt, *[None] * num_calls]

    def interrupted(features, lengths):
        if error := left.pop():
            raise error
        return encode(features, lengths)

    monkeypatch.setattr(record_writer, "encode_examples", interrupted)


def test_a_run_does_not_take_the_blocks_of_another_one_in_the_same_folder(make, text_file):
    """The blocks that a process keeps in memory have the paths of those of the run before."""
    text = pathlib.Path(text_file).read_text()
    backwards = "\n\n".join(reversed(text.split("\n\n")))
    expected = contents(make("expected", text=backwards, num_shards=3))

    first = make("records", text=text, num_shards=3)
    assert contents(first) != expected
    shutil.rmtree(first)
    assert contents(make("records", text=backwards, num_shards=3)) == expected


def test_an_interrupted_run_is_resumed(make, tmp_path, monkeypatch, capsys):
    expected = contents(make("whole", num_shards=4))
    monkeypatch.setattr(shards, "BATCH_RECORDS", 64)
    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        interrupt_after(context, 4)  # in the second of four shards
        make(num_shards=4)
    with pytest.raises(UserError, match="ngram was 3, is 2"):
        make(num_shards=4, ngram=2)
    finished = {path: path.stat().st_mtime_ns for path in records_of(tmp_path / "records")}
    assert 0 < len(finished) < 4
    monkeypatch.setattr(blocks, "read_block", None)  # is not done again
    folder = make(num_shards=4)
    assert contents(folder) == expected
    assert all(path.stat().st_mtime_ns == modified for path, modified in finished.items())
    output = capsys.readouterr()
    assert "resuming the run" in output.err and "examples/s" in output.out


def test_a_finished_run_is_left_alone(make, capsys):
    folder = make()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    capsys.readouterr()
    make()
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert "existed already" in capsys.readouterr().out


def test_bytes_that_are_not_utf8(make, monkeypatch, capsys):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 20)
    text = b"Kalo miter.\nDori.\n\nUn\xff lo.\nPan.\n\nDori pan.\nKalo \xe9.\n\nUn lo.\nDori.\n"
    with pytest.raises(UserError, match=r"input.txt, line 4: not UTF-8;"):
        make(text=text)
    counts = metadata_of(make(text=text, invalid_utf8="replace"))["counts"]
    assert counts["blocks"] > 3 and counts["invalid_utf8_lines"] == 2
    assert "2 lines were not UTF-8" in capsys.readouterr().err


def test_other_records_in_the_folder(make, tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "old.tfrecord").write_text("")
    with pytest.raises(UserError, match=r"holds other records \(old.tfrecord\)"):
        make()


def test_other_settings_in_the_folder(make, tmp_path):
    make()
    before = contents(tmp_path / "records")
    with pytest.raises(UserError, match="masked_lm_prob was 0.15, is 0.2; give another folder"):
        make(masked_lm_prob=0.2)
    assert contents(tmp_path / "records") == before
    with pytest.raises(UserError, match="num_shards was 0, is 3"):
        make(num_shards=3)
    with pytest.raises(UserError, match="input_file named other files"):
        make(text=made_up_text(5, 1))


def test_too_few_predictions_are_warned_of(make, capsys):
    make(max_predictions_per_seq=5)
    warning = "--max_predictions_per_seq=5 masks 7.8% of a full example"
    assert warning in capsys.readouterr().err
    make("enough", max_seq_length=256, max_predictions_per_seq=38)
    assert "warning" not in capsys.readouterr().err


def test_a_paragraph_in_each_line_is_divided_into_sentences_of_a_pair(make, spm_model_file, capsys):
    rng = np.random.default_rng(3)
    words = ["kalo", "miter", "un", "lo", "dori", "pan", "sel", "eth"]
    paragraphs = [" ".join(rng.choice(words, 300)) + "." for _ in range(12)]
    text = "\n\n".join("\n".join(paragraphs[start : start + 3]) for start in (0, 3, 6, 9))
    folder = make(text=text, dupe_factor=1)
    counts = metadata_of(folder)["counts"]
    assert [counts["documents"], counts["sentences"], counts["divided_sentences"]] == [4, 12, 12]
    # Before, each line was one example, of which A and B together have 61 tokens, with label 1.
    assert counts["text_tokens_in_records"] > 0.9 * counts["tokens"] > 4000
    assert counts["label_0"] > 0.25 * counts["examples"] > 15
    errors = capsys.readouterr().err
    assert "12 lines are longer than an example and were divided (split_sentences writes" in errors
    assert re.search(r": 9\d\.\d% of the tokens are in the records of a pass\n", errors)
    # No token is in two examples in order: those of a pass are at most the text's.
    features = read(folder)
    in_order = [
        sum(map(len, tokens_of(features, row)))
        for row, label in enumerate(features["next_sentence_labels"][:, 0])
        if not label
    ]
    assert sum(in_order) <= counts["text_tokens_in_records"] <= counts["tokens"]


def test_a_share_below_nine_tenths_is_warned_of_with_the_flags_that_keep_more(make, capsys):
    lines = made_up_text(60, seed=5).replace("\n\n", "\n").split("\n")
    sentences = [" ".join(lines[start : start + 2]) for start in range(0, 100, 2)]
    make(text="\n\n".join(sentences), max_seq_length=64)
    errors = capsys.readouterr().err
    assert re.search(r"warning: only \d\d\.\d% of the tokens are in the records of a pass", errors)
    assert "raise --max_seq_length=64, or let split_sentences divide" in errors
    assert "--single_segment=clean" in errors
    make("longer", text="\n\n".join(sentences), max_seq_length=256, max_predictions_per_seq=38)
    assert "warning" not in capsys.readouterr().err


def test_a_vocabulary_of_another_language_is_warned_of(make, tmp_path, capsys):
    text = "東京は日本の首都です。\nanna saw bert .\n" * 40
    (tmp_path / "ja.txt").write_text(text)
    make(input_file=str(tmp_path / "ja.txt"))
    assert re.search(r"does not know \d\d.\d% of the tokens", capsys.readouterr().err)
