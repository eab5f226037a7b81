"""Apache Beam gives the records of the local engine: blocks, files, interruptions, remote paths, wrong input."""

import importlib.util

import pytest

from albert_tf.core.errors import UserError
from albert_tf.data_prep.engines.choice import quiet_imports
from albert_tf.data_prep.pretraining import blocks, plan
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from tests.data_prep.test_create_pretraining_data import (
    contents,
    interrupt_after,
    metadata_of,
    records_of,
)
from tests.helpers import made_up_text, run_script

HAS_BEAM = importlib.util.find_spec("apache_beam") is not None
# Beam's job service in the process of the program, as its own tests start it.
EMBEDDED = "--job_endpoint=embed --environment_type=LOOPBACK"
PROGRAM = "-m data_prep.create_pretraining_data"
needs_beam = pytest.mark.skipif(not HAS_BEAM, reason="Apache Beam is not installed")

if HAS_BEAM:
    with quiet_imports():
        from albert_tf.data_prep.engines import beam


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
def make(make_records, text_folder):
    """Makes records of `text_folder` with Beam, if not asked for another engine; returns their folder."""

    def records(folder="records", **changes):
        settings = {"input_file": str(text_folder), "dupe_factor": 3, "runner": "portable"}
        settings.update(changes)
        if settings["runner"] == "portable":
            settings["pipeline_options"] = EMBEDDED
        return make_records(folder, **settings)

    return records


@pytest.fixture
def small_blocks(monkeypatch):
    """Many blocks and parts of little text."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 5000)
    monkeypatch.setattr(plan, "SHARD_BYTES", 60_000)
    monkeypatch.setattr(plan, "UNITS_OF_SHARD", 5)


@needs_beam
@pytest.mark.parametrize(
    "changes",
    [
        {"record_format": "full", "sentence_task": "nsp", "num_shards": 2},
        {"masking": "dynamic"},
        {},
    ],
    ids=["full", "dynamic", "packed"],
)
def test_files_and_metadata_are_those_of_the_local_engine(make, small_blocks, changes):
    portable = make("portable", **changes)
    assert metadata_of(portable)["counts"]["blocks"] > 8
    local = make("local", **changes, runner="local")
    assert contents(portable) == contents(local)


@needs_beam
@pytest.mark.slow
def test_the_command_in_the_shell(tmp_path, spm_model_file):
    text_file = tmp_path / "text.txt"
    text_file.write_text(made_up_text(3500, seed=3, num_sentences=(6, 18)))
    assert text_file.stat().st_size > 2 * blocks.BLOCK_BYTES
    flags = [f"--input_file={text_file}", f"--spm_model_file={spm_model_file}"]
    flags += ["--max_seq_length=64", "--dupe_factor=1", "--record_format=full"]
    beam_flags = ["--runner=portable", f"--pipeline_options={EMBEDDED}"]
    for name, more in {"portable": beam_flags, "local": []}.items():
        result = run_script(PROGRAM, *flags, f"--output_dir={tmp_path / name}", *more)
        assert result.returncode == 0, result.stderr
    assert metadata_of(tmp_path / "local")["counts"]["blocks"] > 2
    assert contents(tmp_path / "portable") == contents(tmp_path / "local")


@needs_beam
def test_a_run_is_resumed_where_another_was_stopped(make, monkeypatch, small_blocks, capsys):
    expected = contents(make("whole", num_shards=6))
    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        interrupt_after(context, 5)
        make(runner="local", num_shards=6)
    monkeypatch.setattr(blocks, "read_block", None)  # no block is tokenized again
    folder = make(num_shards=6)
    assert contents(folder) == expected
    assert "resuming the run" in capsys.readouterr().err


@pytest.mark.parametrize("runner", ["local", pytest.param("portable", marks=needs_beam)])
def test_remote_paths_give_the_same_files(make, tmp_path, text_folder, spm_model_file, runner):
    local = make("local", runner="local")
    remote = make(
        input_file=f"file://{text_folder}",
        output_dir=f"file://{tmp_path}/remote",
        spm_model_file=f"file://{spm_model_file}",
        runner=runner,
    )
    names = [file["file"] for file in metadata_of(remote)["input_files"]]
    assert names == [
        f"file://{text_folder}/{name}" for name in ("a.txt", "c.txt", "d.txt", "b/1.txt")
    ]
    shards = {path.name: path.read_bytes() for path in records_of(remote)}
    assert shards == {path.name: path.read_bytes() for path in records_of(local)}
    assert set(contents(remote)) == set(contents(local))


@needs_beam
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"Kalo.\nUn\xff lo.\n", r"^\S+wrong.txt, line 2: not UTF-8;.*=replace reads on$"),
        (b"\n \n", r"wrong.txt: holds no text$"),
    ],
)
def test_an_error_of_a_worker_is_one_line(make, tmp_path, text, message):
    (tmp_path / "wrong.txt").write_bytes(text)
    with pytest.raises(UserError, match=message):
        make(input_file=str(tmp_path / "wrong.txt"))


@needs_beam
def test_options_reach_beam():
    settings = PretrainingDataSettings(
        input_file="x",
        output_dir="y",
        runner="portable",
        pipeline_options="--job_endpoint=localhost:1 '--job_name=a b'",
    )
    options = beam.pipeline_options(settings).get_all_options()
    assert options["runner"] == "PortableRunner" and options["job_endpoint"] == "localhost:1"
    assert options["job_name"] == "a b"


@pytest.mark.parametrize(
    ("runner", "module", "name"),
    [("portable", "apache_beam", "Apache Beam"), ("dask", "distributed", "Dask")],
)
def test_a_missing_package_is_one_line(tmp_path, spm_model_file, runner, module, name):
    missing = f"raise ModuleNotFoundError('not here', name='{module}')"
    (tmp_path / f"{module}.py").write_text(missing)
    (tmp_path / "x.txt").write_text("x")
    flags = [f"--input_file={tmp_path}/x.txt", f"--output_dir={tmp_path}/y", f"--runner={runner}"]
    flags += [f"--spm_model_file={spm_model_file}", "--max_predictions_per_seq=77"]
    result = run_script(PROGRAM, *flags, PYTHONPATH=str(tmp_path))
    assert result.returncode == 1
    extra = "dask" if runner == "dask" else "beam"
    hint = f"--runner={runner} needs {name}: pip install '.[{extra}]' in a checkout\n"
    assert result.stderr.endswith(hint)
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "y").exists()
