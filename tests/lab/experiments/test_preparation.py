"""What rows share: texts, vocabulary, records and the development set."""

import json
import pathlib
import shutil

import pytest
from msgspec.structs import replace

from albert_tf.core.errors import UserError
from albert_tf.data.reading import first_batches
from albert_tf.data.record_set import find_pretraining_records
from albert_tf.data_prep.pretraining import shards
from albert_tf.text.tokenizer import Tokenizer
from lab.experiments import development_set
from lab.experiments.development_set import IntrinsicSettings, race_passages, squad_passages
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


def test_passages_are_those_of_the_files_each_once(workspace, tmp_path):
    text = pathlib.Path(workspace.intrinsic(), "passages.txt").read_text()
    documents = text.strip().split("\n\n")
    assert len(documents) == 20  # the context that comes twice counts once
    assert documents[0].splitlines()[:3] == ["aaa uuu.", "aaa vvv.", "aaa www."]
    common = {"output_dir": str(tmp_path), "spm_model_file": workspace.vocabulary()}
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"data": [1]}')
    with pytest.raises(UserError, match='expected an object with "paragraphs"'):
        development_set.make(IntrinsicSettings(squad_file=str(wrong), **common))
    with pytest.raises(UserError, match="must be given"):
        IntrinsicSettings(**common)


def test_real_passages_are_all_there(real_data):
    squad = real_data / "squad" / "dev-v1.1.json"
    assert len(list(squad_passages(str(squad)))) == 2067
    assert len(list(race_passages(str(real_data / "race" / "dev")))) == 368 + 1021


def test_data_is_made_once_for_each_setting(workspace, micro):
    _, experiment = micro
    row = experiment.rows[0]
    folder = workspace.records(row)
    written = pathlib.Path(folder, "metadata.json").stat().st_mtime_ns
    assert workspace.records(experiment.rows[1]) == folder
    assert pathlib.Path(folder, "metadata.json").stat().st_mtime_ns == written
    nsp = replace(row, data={"sentence_task": "nsp"})
    assert workspace.records(nsp) != folder
    with pytest.raises(UserError, match="has no text 'additional'"):
        workspace.records(replace(row, text="additional"))
    assert list(workspace.texts) == ["standard"]
    assert not Workspace(workspace.scale, "", workspace.work_dir).texts


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


def test_other_text_in_the_same_work_folder_is_refused(without_passages, tmp_path):
    texts = without_passages.text("standard")
    data_dir = tmp_path / "data"
    shutil.copytree(without_passages.data_dir, data_dir)
    scale, work_dir = without_passages.scale, without_passages.work_dir
    other = Workspace(scale, str(data_dir), work_dir)
    assert other.text("standard") == texts  # the same files elsewhere

    def check_refused(name):
        before = set(pathlib.Path(other.path("text")).iterdir())
        with pytest.raises(UserError) as caught:
            other.text("standard")
        message = str(caught.value)
        assert message.startswith(f"{other.folder}: its text 'standard' was made of other files")
        assert f"{name} for one); choose another --work_dir" in message and "\n" not in message
        assert set(pathlib.Path(other.path("text")).iterdir()) == before

    changed = data_dir / "text" / "7.txt"
    changed.write_text(changed.read_text() + "More.\n")
    check_refused("text/7.txt")


def test_the_last_quarter_of_squads_development_set_is_for_evaluation(micro, tmp_path):
    articles = [{"title": title, "paragraphs": []} for title in "abcd"]
    (tmp_path / "squad").mkdir()
    dev = tmp_path / "squad" / "dev-v1.1.json"
    dev.write_text(json.dumps({"version": "1.1", "data": articles}))
    paths = Workspace(micro[0], str(tmp_path), str(tmp_path / "work")).squad_files("1.1")
    for name, kept in (("train_file", articles[:3]), ("eval_file", articles[3:])):
        expected = {"version": "1.1", "data": kept}
        assert json.loads(pathlib.Path(paths[name]).read_text()) == expected


def test_a_killed_command_goes_on(workspace, data_dir, tmp_path, monkeypatch, capsys):
    squad = tmp_path / "dev.json"
    shutil.copy(data_dir / "squad" / "dev-v1.1.json", squad)
    settings = IntrinsicSettings(
        squad_file=str(squad),
        spm_model_file=workspace.vocabulary(),
        output_dir=str(tmp_path / "made"),
        max_seq_length=24,
    )
    make_shard, calls = shards.make_shard, []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return make_shard(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shards, "make_shard", killed)
        development_set.make(settings)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.glob("made/*/*.tfrecord")}
    assert {path.parent.name for path in made} == {"sop"}
    capsys.readouterr()
    counts = development_set.make(settings)
    assert set(counts) == {"none", "nsp", "sop"} and min(counts.values()) > 10
    assert all(path.stat().st_mtime_ns == written for path, written in made.items())
    assert "resuming the run" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.glob("made/passages*")) == ["passages.txt"]

    squad.write_text(squad.read_text().replace("aaa", "bbbb"))
    with pytest.raises(UserError, match="holds records of another run: --input_file"):
        development_set.make(settings)
    assert (tmp_path / "made" / "passages.txt").read_text().startswith("bbbb uuu.\n")
