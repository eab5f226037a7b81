"""Apache Beam gives the records of the local engine: blocks, files, interruptions, remote paths, wrong input.

Covers: beam_files.py.
"""

import importlib.util
import pathlib
import random
import subprocess
import sys

import pytest
import tensorflow as tf

from albert_tf.core import checksums
from albert_tf.core.errors import UserError
from albert_tf.data_prep import create_pretraining_data as program
from albert_tf.data_prep.pretraining import build, plan, record_writer, text_blocks
from albert_tf.data_prep.pretraining.record_folder import FileAccess, WorkFolder
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings, with_pipeline_options
from tests.data_prep.test_create_pretraining_data import (
    contents,
    made_up_text,
    metadata_of,
    records_of,
)
from tests.helpers import ROOT, train_spm

HAS_BEAM = importlib.util.find_spec("apache_beam") is not None
needs_beam = pytest.mark.skipif(not HAS_BEAM, reason="Apache Beam is not installed")

if HAS_BEAM:
    with program.quiet_imports():
        from apache_beam.io.filesystem import FileMetadata
        from apache_beam.io.localfilesystem import LocalFileSystem

        from albert_tf.data_prep.pretraining import beam_files, beam_pipeline

    class DiskFileSystem(LocalFileSystem):
        """This machine's files under disk://, as a remote file system."""

        @classmethod
        def scheme(cls):
            return "disk"

        def _path_open(self, path, *args, **kwargs):
            return super()._path_open(here(path), *args, **kwargs)

        def _list(self, path):
            for file in super()._list(here(path)):
                yield self._there(file)

        def metadata(self, path):
            return self._there(super().metadata(here(path)))

        def exists(self, path):
            return super().exists(here(path))

        def create(self, path, *args, **kwargs):
            return super().create(here(path), *args, **kwargs)

        def rename(self, old, new):
            return super().rename(list(map(here, old)), list(map(here, new)))

        def delete(self, paths):
            LocalFileSystem(None).delete(list(map(here, paths)))

        def _there(self, file):
            path = f"disk://{file.path.removeprefix('disk://')}"
            return FileMetadata(path, file.size_in_bytes, file.last_updated_in_seconds)


def here(path):
    return path.removeprefix("disk://")


@pytest.fixture(scope="module")
def spm_model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("spm") / "spiece.model"
    return train_spm(path, made_up_text(200, seed=1).lower().splitlines(), vocab_size=200)


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory):
    """Text in several files, one of them empty, one without a last line end."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "b").mkdir()
    texts = {"b/1.txt": 40, "a.txt": 70, "c.txt": 45}
    for seed, (name, num_documents) in enumerate(texts.items()):
        (folder / name).write_text(made_up_text(num_documents, seed))
    (folder / "d.txt").write_text("")
    (folder / ".hidden").write_text("Not text.\n")
    return folder


@pytest.fixture
def make(tmp_path, spm_model_file, text_folder):
    """Makes records, in this process if not asked for more; returns their folder."""

    def make_records(name="records", **changes):
        defaults = {
            "input_file": str(text_folder),
            "output_dir": str(tmp_path / name),
            "spm_model_file": spm_model_file,
            "max_seq_length": 64,
            "max_predictions_per_seq": 10,
            "dupe_factor": 3,
            "num_workers": 1,
            "runner": "direct",
        }
        settings = PretrainingDataSettings(**{**defaults, **changes})
        program.main(settings)
        return pathlib.Path(here(settings.folder))

    return make_records


@pytest.fixture
def small_blocks(monkeypatch):
    """Many blocks, ranges and parts of little text."""
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 5000)
    monkeypatch.setattr(text_blocks, "BLOCK_DOCUMENTS", 3)
    monkeypatch.setattr(plan, "PART_BYTES", 60_000)
    monkeypatch.setattr(plan, "UNITS_OF_PART", 5)
    if HAS_BEAM:
        monkeypatch.setattr(beam_pipeline, "RANGE_BYTES", 7000)


def serialized(folder):
    """All records of a folder, sorted."""
    files = [str(path) for path in records_of(folder)]
    kind = "GZIP" if files[0].endswith(".gz") else ""
    return sorted(tf.data.TFRecordDataset(files, kind).as_numpy_iterator())


# --- The same records.

FORMATS = {
    "full": {"record_format": "full"},
    "compact": {"record_format": "compact", "num_shards": 3},
    "dynamic": {"record_format": "compact", "masking": "dynamic", "dupe_factor": 1},
    "packed": {"record_format": "packed", "num_shards": 3, "short_seq_prob": 0.5},
    "gzip": {
        "record_format": "full",
        "compression": "gzip",
        "num_shards": 2,
        "sentence_task": "nsp",
    },
}


@needs_beam
@pytest.mark.parametrize("changes", FORMATS.values(), ids=FORMATS)
def test_examples_files_and_metadata_are_those_of_the_local_engine(make, small_blocks, changes):
    local, direct = make("local", runner="local", **changes), make("direct", **changes)
    counts = metadata_of(direct)["counts"]
    assert counts["blocks"] > 8
    examples = serialized(direct)
    assert len(examples) == counts.get("rows", counts["examples"]) > 100
    assert examples == serialized(local)
    # Not only the examples: every file, and nothing else.
    assert contents(direct) == contents(local)


@needs_beam
@pytest.mark.parametrize(
    "options",
    [
        "--direct_running_mode=multi_threading --direct_num_workers=3",
        "--direct_runner_bundle_repeat=1",  # all work is handed out twice
    ],
)
def test_workers_and_repeated_work_change_nothing(make, small_blocks, options):
    expected = contents(make("local", runner="local", num_shards=5))
    assert contents(make(num_shards=5, pipeline_options=options)) == expected


@needs_beam
@pytest.mark.slow
def test_two_worker_processes(tmp_path, spm_model_file):
    text_file = tmp_path / "text.txt"
    text_file.write_text(made_up_text(3500, seed=3, num_sentences=(6, 18)))
    assert text_file.stat().st_size > 2 * text_blocks.BLOCK_BYTES
    flags = [f"--input_file={text_file}", f"--spm_model_file={spm_model_file}"]
    flags += ["--max_seq_length=64", "--dupe_factor=1", "--record_format=compact"]
    run = [sys.executable, "-m", "data_prep.create_pretraining_data", *flags]
    direct = [f"--output_dir={tmp_path / 'direct'}", "--runner=direct", "--num_workers=2"]
    result = subprocess.run(
        [*run, *direct, "--", "--job_name=two"], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    subprocess.run([*run, f"--output_dir={tmp_path / 'local'}"], cwd=ROOT, check=True)
    assert metadata_of(tmp_path / "local")["counts"]["blocks"] > 2
    assert contents(tmp_path / "direct") == contents(tmp_path / "local")


# --- Where the blocks are.


def random_text(rng, num_lines):
    """Lines of few characters, long ones, blank ones of several kinds; perhaps without a last line end."""
    kinds = [b"ab", b"\xc3\xa9\xc3\xa9\xc3\xa9", b"", b"", b" \t", b"\r", b"x" * 40, b" " * 30]
    lines = [rng.choice(kinds) * rng.randint(1, 3) for _ in range(num_lines)]
    return b"\n".join(lines) + rng.choice([b"", b"\n", b"\n\n"])


@needs_beam
@pytest.mark.parametrize("seed", range(30))
def test_blocks_are_those_of_the_local_engine(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    sizes = {"BLOCK_BYTES": 50, "BLOCK_DOCUMENTS": 3, "LARGE_BLOCK_BYTES": 90}
    sizes |= {"MOST_BLOCK_BYTES": rng.choice([100, 200, 400]), "MOST_LINE_BYTES": 16}
    sizes["MOST_BLANK_LINES"] = rng.choice([2, 5, 1000])
    for name, size in sizes.items():
        monkeypatch.setattr(text_blocks, name, size)
    monkeypatch.setattr(beam_pipeline, "RANGE_BYTES", rng.choice([7, 33, 150, 10_000]))
    files = []
    for number in range(rng.randint(1, 4)):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(random_text(rng, rng.choice([0, 3, 60])))
        files.append({"file": str(path), "bytes": path.stat().st_size})
    work = WorkFolder(str(tmp_path / "work"), beam_files.BeamFileAccess())
    work.files.write_json(work.file("settings.json"), {"input_files": files})
    job = build.Job(None, None, work, None, None)

    for part in beam_pipeline.ranges_of(files):
        beam_pipeline.scan_range(part, job)
    places = list(beam_pipeline.cut_into_blocks(job))
    found = [beam_pipeline.read_block(place, job) for place in places]
    assert found == list(text_blocks.read_blocks([file["file"] for file in files]))


@needs_beam
def test_a_block_can_be_read_from_its_start_on(text_folder, monkeypatch):
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 3000)
    files = [str(text_folder / name) for name in ("a.txt", "c.txt")]
    blocks = list(text_blocks.read_blocks(files))
    text = (text_folder / "a.txt").read_bytes()
    offset = text.index(b"\n".join(blocks[1].lines))
    line = text[:offset].count(b"\n") + 1
    start = text_blocks.Position(0, offset, line)
    rest = list(text_blocks.read_blocks(files, start))
    assert [block.lines for block in rest] == [block.lines for block in blocks[1:]]
    assert [block.sources for block in rest] == [block.sources for block in blocks[1:]]


# --- Runs that were stopped, and finished ones.


def interrupt_after(monkeypatch, num_calls):
    """Lets the making of records fail after some calls, as a machine that is lost."""
    encode, calls = record_writer.encode_examples, []

    def failing(features, lengths):
        calls.append(None)
        if len(calls) > num_calls:
            raise RuntimeError("the machine is gone")
        return encode(features, lengths)

    monkeypatch.setattr(record_writer, "encode_examples", failing)


@needs_beam
@pytest.mark.parametrize(("first", "second"), [("direct", "direct"), ("local", "direct")])
def test_a_run_is_resumed_where_another_was_stopped(
    make, monkeypatch, small_blocks, capsys, first, second
):
    expected = contents(make("whole", num_shards=6))
    with monkeypatch.context() as context, pytest.raises(RuntimeError, match="machine is gone"):
        interrupt_after(context, 5)
        make(runner=first, num_shards=6)
    monkeypatch.setattr(build, "decode_lines", None)  # no block is tokenized again
    folder = make(runner=second, num_shards=6)
    assert contents(folder) == expected
    assert "resuming the run" in capsys.readouterr().err


@needs_beam
def test_a_finished_run_is_left_alone_and_others_are_refused(make, capsys):
    folder = make()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    make()
    assert "existed already" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    with pytest.raises(UserError, match="ngram was 3, is 2; give another folder"):
        make(ngram=2)
    records_of(folder)[0].write_bytes(b"")
    with pytest.raises(UserError, match="00000-of-.*: is missing or was changed"):
        make()
    (folder / "metadata.json").unlink()
    with pytest.raises(UserError, match=r"holds other records \(pretraining-00000"):
        make()


# --- Remote file systems.


def what_is_found(files, folder):
    """What each function of a `FileAccess` gives for a folder that it fills."""
    file, other, missing = (f"{folder}/{name}" for name in ("a.json", "b", "c"))
    found = [files.sizes_in(folder), files.size_of(file), files.read_json(file)]
    files.write_json(file, {"a": [1]})
    with files.output_file(other, within=folder) as output:
        output.write(b"x" * 5)
    with pytest.raises(KeyError), files.output_file(missing):
        raise KeyError
    with files.open(other) as opened:
        found.append(opened.read())
    found += [files.sizes_in(folder), files.size_of(other), files.read_json(file)]
    with pytest.raises(UserError, match=f"{other}: not JSON"):
        files.read_json(other)
    files.remove_folder(folder)
    return [*found, files.sizes_in(folder), files.read_bytes(other)]


@needs_beam
@pytest.mark.parametrize("scheme", ["", "disk://"])
def test_files_are_reached_alike_everywhere(tmp_path, scheme):
    found_here = what_is_found(FileAccess(), str(tmp_path / "here"))
    written = len(checksums.json_file({"a": [1]}))
    sizes = {"a.json": written, "b": 5}
    assert found_here == [{}, None, None, b"xxxxx", sizes, 5, {"a": [1]}, {}, None]
    access = beam_files.BeamFileAccess()
    assert what_is_found(access, f"{scheme}{tmp_path}/there") == found_here


@needs_beam
def test_remote_paths_give_the_same_files(make, tmp_path, text_folder, spm_model_file):
    local = make("local", runner="local")
    remote = make(
        input_file=f"disk://{text_folder}",
        output_dir=f"disk://{tmp_path}/remote",
        spm_model_file=f"disk://{spm_model_file}",
    )
    assert metadata_of(remote)["input_files"][0]["file"] == f"disk://{text_folder}/a.txt"
    shards = {path.name: path.read_bytes() for path in records_of(remote)}
    assert shards == {path.name: path.read_bytes() for path in records_of(local)}
    assert set(contents(remote)) == set(contents(local))


@needs_beam
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["a.txt", "c.txt", "d.txt", "b/1.txt"]),
        ("/", ["a.txt", "c.txt", "d.txt", "b/1.txt"]),
        ("/*.txt", ["a.txt", "c.txt", "d.txt"]),
        ("/c.txt", ["c.txt"]),
        ("/b", ["b/1.txt"]),
        ("/*/?.txt", ["b/1.txt"]),
    ],
)
def test_remote_files_come_in_the_order_of_local_ones(text_folder, pattern, expected):
    files = beam_files.expand_inputs(f"disk://{text_folder}{pattern}")
    assert [file.path for file in files] == [f"disk://{text_folder}/{name}" for name in expected]
    found_here = beam_files.expand_inputs(f"{text_folder}{pattern}")
    names = [str(pathlib.Path(file.path).relative_to(text_folder)) for file in found_here]
    assert names == expected
    assert [file.num_bytes for file in files] == [file.num_bytes for file in found_here]


@needs_beam
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_file": "disk:///nowhere/*"}, r"disk:///nowhere/\*: no such file there$"),
        ({"input_file": "nothing://x"}, "--input_file=nothing://x: cannot be listed .*scheme|get"),
        ({"spm_model_file": "disk:///nowhere"}, r"disk:///nowhere: cannot be \w+ \(.*No such file"),
        ({"output_dir": "disk:///proc/x"}, "disk:///proc/x/.*: cannot be written"),
    ],
)
def test_remote_paths_that_cannot_be_used(make, changes, message):
    with pytest.raises(UserError, match=message) as caught:
        make(**changes)
    assert len(str(caught.value).splitlines()) == 1


# --- Wrong input.


@needs_beam
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"Kalo.\nUn\xff lo.\n", r"^\S+wrong.txt, line 2: not UTF-8 \(1 such .*=replace reads on$"),
        (b"\n \n", r"wrong.txt: holds no text$"),
    ],
)
def test_an_error_of_a_worker_is_one_line_and_leaves_nothing(make, tmp_path, text, message):
    (tmp_path / "wrong.txt").write_bytes(text)
    with pytest.raises(UserError, match=message):
        make(input_file=str(tmp_path / "wrong.txt"))
    assert not (tmp_path / "records").exists()


@needs_beam
def test_the_first_invalid_line_is_told(make, tmp_path, small_blocks, capsys):
    lines = made_up_text(60, 2).encode().split(b"\n")
    for number in (170, 90, 250):
        lines[number] = b"Un\xff lo."
    (tmp_path / "text.txt").write_bytes(b"\n".join(lines))
    make(input_file=str(tmp_path / "text.txt"), invalid_utf8="replace")
    assert "3 lines were not UTF-8, the first: " in (told := capsys.readouterr().err)
    assert f"{tmp_path / 'text.txt'}, line 91\n" in told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runner": "local", "pipeline_options": "--x"}, "--pipeline_options contradicts --runner"),
        ({"runner": "local", "input_file": "gs://b/x"}, "--input_file is on a remote file system"),
        ({"runner": "flink", "num_workers": 2}, "--num_workers contradicts --runner=flink"),
        ({"runner": "dataflow"}, "--output_dir must be remote with --runner=dataflow"),
        ({"output_dir": "x[1]"}, r"--output_dir must hold none of \*\?\["),
        ({"pipeline_options": "--a='"}, "--pipeline_options cannot be split .*quotation"),
        ({"pipeline_options": "--runner=x"}, "--runner must come before --"),
    ],
)
def test_contradictory_flags(changes, message):
    values = {"input_file": "x", "output_dir": "y", "num_workers": 0, "runner": "direct"}
    with pytest.raises(UserError, match=message):
        PretrainingDataSettings(**{**values, **changes})


def test_options_after_two_dashes():
    split = with_pipeline_options
    assert split(["x", "--runner=local"]) == ["x", "--runner=local"]
    after = split(["x", "--runner=flink", "--pipeline_options=--a", "--", "--b=c d", "--e"])
    assert after == ["x", "--runner=flink", "--pipeline_options=--a '--b=c d' --e"]


@needs_beam
def test_options_reach_beam():
    settings = PretrainingDataSettings(
        input_file="x",
        output_dir="y",
        runner="portable",
        pipeline_options="--job_endpoint=localhost:1 '--job_name=a b'",
    )
    options = beam_pipeline.pipeline_options(settings).get_all_options()
    assert options["runner"] == "PortableRunner" and options["job_endpoint"] == "localhost:1"
    assert options["job_name"] == "a b"


def run_code(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environment
    )


def test_without_beam(tmp_path, spm_model_file):
    (tmp_path / "apache_beam.py").write_text(
        "raise ModuleNotFoundError('not here', name='apache_beam')"
    )
    (tmp_path / "x.txt").write_text("x")
    flags = [f"--input_file={tmp_path}/x.txt", f"--output_dir={tmp_path}/y", "--runner=direct"]
    result = subprocess.run(
        [sys.executable, "-m", "data_prep.create_pretraining_data", *flags]
        + [f"--spm_model_file={spm_model_file}", "--max_predictions_per_seq=77"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert result.returncode == 1
    assert result.stderr.endswith("needs Apache Beam: pip install '.[beam]' in a checkout\n")
    assert result.stderr.count("\n") == 1


def test_only_other_runners_import_beam():
    code = "import sys, data_prep.create_pretraining_data; print('apache_beam' in sys.modules)"
    assert run_code(code).stdout == "False\n"


@needs_beam
def test_workers_import_no_tensorflow():
    code = "import sys, albert_tf.data_prep.pretraining.beam_pipeline; print('tensorflow' in sys.modules)"
    assert run_code(code).stdout == "False\n"
