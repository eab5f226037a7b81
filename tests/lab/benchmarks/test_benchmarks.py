"""The benchmark measures what it says, the same work for all, and goes on after failures; no time is asserted."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from albert_tf import UserError, load_pretrained
from albert_tf.model.encoder import AlbertEncoder
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.settings import OptimizerConfig, RunConfig
from lab.benchmarks import libraries, measure, report, run, training_step
from lab.benchmarks.measure import BenchSettings
from lab.benchmarks.training_step import PACKED, Step
from tests.data.record_formats.test_packed import make  # noqa: F401 - a fixture
from tests.helpers import BATCH, TINY, pretrain_here, run_script, the_line

SIZES = {name: value for name, value in TINY.to_dict().items() if isinstance(value, int)}
TINY_STEP = Step("ours", batch=BATCH, length=11, changes=tuple(SIZES.items()))


@pytest.fixture
def settings(tmp_path, tiny_pretrained) -> BenchSettings:
    """A quick run of the fastest measurement into a temporary folder."""
    (tmp_path / "text.txt").write_text("anna met bert .\n" * 9)
    return BenchSettings(
        text_file=str(tmp_path / "text.txt"),
        spm_model_file=str(tiny_pretrained / "spiece.model"),
        quick=True,
        only="sentencepiece",
        output_dir=str(tmp_path / "results"),
        work_dir=str(tmp_path / "work"),
    )


def test_warm_up_is_timed_apart_and_repeats_go_on_until_there_are_enough():
    calls = []
    timing = measure.repeated(lambda: calls.append(1), 0.0, warm_up=2, least=3)
    assert len(calls) == 5
    assert (len(timing["warm_up"]), timing["repeats"], len(timing["samples"])) == (2, 3, 3)
    calls.clear()
    assert measure.repeated(lambda: calls.append(1), 1e6, warm_up=0, most=7)["repeats"] == 7
    assert len(calls) == 7


def test_a_measurement_in_its_own_process_and_results_that_are_taken_up(settings, capsys):
    run.main(settings)
    folder = pathlib.Path(settings.output_dir)
    content = json.loads((folder / "results.json").read_text())
    (result,) = content["measurements"].values()
    assert result["status"] == "done" and result["peak_bytes"] > 1e6
    assert result["values"]["bytes_a_second"] > 0
    assert content["machine"]["cores"] >= 1 and content["versions"]["tensorflow"]
    assert (folder / "table.md").read_text().startswith("# Speed and memory")
    with pytest.raises(UserError, match="holds results; continue them with --resume"):
        run.main(settings)
    capsys.readouterr()
    run.main(BenchSettings(**{**settings.to_dict(), "resume": True}))
    assert "sentencepiece" not in capsys.readouterr().out  # it is not made again
    assert json.loads((folder / "results.json").read_text())["measurements"] == {
        "sentencepiece": result
    }
    with pytest.raises(UserError, match="--quick was 'true' for the results in"):
        run.ResultsFolder(BenchSettings(**{**settings.to_dict(), "resume": True, "quick": False}))


def test_what_fails_or_takes_too_long_says_so(settings):
    failed = measure.in_process("no_such_measurement", settings, 60)
    assert failed["status"] == "failed" and failed["reason"] == "KeyError: 'no_such_measurement'"
    slow = measure.in_process("sentencepiece", settings, 0.01)
    assert slow["status"] == "over its time" and "values" not in slow


def test_memory_of_a_process_and_of_what_it_starts():
    held = "import subprocess, sys, time; held = b'x' * 50_000_000; "
    inner = held + "time.sleep(1)"
    outer = held + f"subprocess.run([sys.executable, '-c', {inner!r}])"
    with (
        subprocess.Popen([sys.executable, "-c", outer]) as process,
        measure.memory_of_processes(process.pid) as most,
    ):
        assert process.wait() == 0
    assert sys.platform != "linux" or 1e8 < most[0] < 2e8


def test_the_list_needs_no_tensorflow_and_a_wrong_name_is_one_line(no_tensorflow):
    listed = run_script("-m lab.benchmarks.run", "--list", "--quick", **no_tensorflow)
    assert listed.returncode == 0, listed.stderr
    assert "training_step.16x128.float32.ours" in listed.stdout.split()
    assert "memory.large" not in listed.stdout
    wrong = run_script("-m lab.benchmarks.run", "--only=engine", **no_tensorflow)
    assert the_line(wrong) == (
        "run.py: --only=engine: no such measurement; --list prints their names"
    )


def test_operations_of_a_step_by_hand():
    # B 6, L 11, P 2 (15 % of 11), E 7, D 20, F 19, V 101, 3 layers.
    assert TINY_STEP.predictions == 2
    layer = 4 * 20 * 20 + 2 * 20 * 19 + 2 * 11 * 20
    products = 6 * 11 * (3 * layer + 7 * 20) + 6 * 2 * (20 * 7 + 7 * 101) + 6 * (20 * 20 + 20 * 2)
    assert TINY_STEP.flops == 6 * products
    base = Step("ours", batch=8, length=512)
    assert base.flops == pytest.approx(2.34e12, rel=0.003)


@pytest.mark.slow
def test_the_step_that_is_timed_is_the_one_of_training(records_file, config_file, tmp_path):
    settings = {"learning_rate": 0.01, "num_warmup_steps": 0, "num_train_steps": 2}
    common = {"train_batch_size": BATCH, "do_eval": False, "seed": 3}
    flags = {**settings, **common, "input_file": records_file, "albert_config_file": config_file}
    pretrain_here(
        *(f"--{name}={value}" for name, value in flags.items()), f"--output_dir={tmp_path / 'run'}"
    )
    config = RunConfig(output_dir=str(tmp_path / "unused"), **common)
    pretraining = PretrainingConfig(
        input_file=str(records_file), albert_config_file=str(config_file)
    )
    trainer = training_step.make_trainer(
        lambda: PretrainingTask(pretraining, config), config, OptimizerConfig(**settings)
    )
    import tensorflow as tf

    for _ in range(2):
        trainer.train(tf.constant(1))
    assert int(trainer.global_step) == 2
    trained = load_pretrained(str(tmp_path / "run" / "model")).named_variables()
    for name, variable in trainer.model.named_variables().items():
        np.testing.assert_allclose(variable, trained[name], rtol=1e-5, atol=1e-7, err_msg=name)


def test_other_libraries_have_the_same_parameters():
    ours = AlbertEncoder(TINY).count_params()
    assert libraries.model_garden_encoder(TINY).count_params() == ours
    transformers = pytest.importorskip("transformers")
    model = transformers.AlbertModel(libraries.transformers_config(TINY))
    assert sum(parameter.numel() for parameter in model.parameters()) == ours


def test_the_step_of_packed_rows_counts_their_examples_and_tokens(settings, make, monkeypatch):  # noqa: F811
    folder = make("packed", record_format="packed", short_seq_prob=1.0)
    monkeypatch.setattr(training_step, "records_path", lambda *_: str(folder))
    changes = {**SIZES, "max_position_embeddings": 64}
    step = Step(PACKED, batch=5, length=64, changes=tuple(changes.items()))
    values = training_step.measure_step(settings, step=step, effort=0, least=1)
    counts = json.loads((folder / "metadata.json").read_text())["counts"]
    assert values["tokens_of_example"] == counts["tokens_in_records"] / counts["examples"] < 64
    examples = values["examples_a_second"] * values["median"]  # of 5 rows
    assert examples == pytest.approx(5 * counts["examples"] / counts["records"])


def done(**values) -> dict:
    """A result of a measurement, undisturbed unless `others` says otherwise."""
    others = values.pop("others", 0.0)
    peak = values.pop("peak_bytes", 2e9)
    return {"status": "done", "values": values, "peak_bytes": peak, "others": others}


def timing(median: float) -> dict:
    """Seconds that vary by a tenth."""
    return {"median": median, "min": 0.9 * median, "max": 1.1 * median, "repeats": 3}


RESULTS = {
    "date": "2026-01-02",
    "machine": {"processor": "P", "cores": 2, "system": "S", "python": "3", "load_average": [0.1]},
    "versions": {"tensorflow": "2.20"},
    "settings": {"quick": False},
    "measurements": {
        "training_step.8x512.float32.ours": done(
            **timing(6.0), flops=2.4e12, examples_a_second=8 / 6, limit=500e9
        ),
        f"training_step.8x512.float32.{PACKED}": done(
            **timing(6.4), flops=2.4e12, examples_a_second=16 / 6.4, tokens_of_example=250.0
        ),
        "training_step.8x512.float32.model_garden": done(
            **timing(9.0), flops=2.4e12, examples_a_second=8 / 9, others=0.5
        ),
        "training_step.8x512.float32.transformers": {
            "status": "left out",
            "reason": "torch is not installed",
        },
        "memory.base.8x512.ours_recomputed": done(**timing(7.0), peak_bytes=1.25e9),
    },
}


def test_the_table_has_times_shares_and_what_was_left_out(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    report.write(tmp_path)
    text = (tmp_path / "table.md").read_text()
    rows = [tuple(re.split(r" *\| *", line)[1:-1]) for line in text.splitlines() if "|" in line]
    # 2.4e12 operations at 500e9 per second are 4.8 s, 80 % of 6 s.
    ours = ("albert-tf", "6.00 (5.40 to 6.60)", "1.33", "333", "400", "80%", "1.00", "2.00")
    assert ours in rows
    # 16 examples in 6.4 s are 2.5 per second.
    packed = ("albert-tf, packed rows", "6.40 (5.76 to 7.04)", "2.50", "625")
    assert (*packed, "375", "75%", "0.53", "2.00") in rows
    assert "at length 512 250 tokens, 49% of a row, so that full rows hold 2.05 times" in text
    recomputed = ("2.00 GB, 9.00 s", "left out", "1.25 GB, 7.00 s")
    assert ("albert-base 8x512", "2.00 GB, 6.00 s", "2.00 GB, 6.40 s", *recomputed) in rows
    assert "- `training_step.8x512.float32.transformers`: left out: torch is not installed" in text
    assert "model_garden (50%)" in text  # others had half of the processors
    assert "](training_step.png)" in text
    assert (tmp_path / "training_step.png").stat().st_size > 5000
