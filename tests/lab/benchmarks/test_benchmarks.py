"""The benchmark measures what it says, the same work for all, and goes on after failures; no time is asserted.

Covers: core/machine.py, model/flops.py.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from albert_tf import AlbertConfig, UserError, load_pretrained
from albert_tf.model.encoder import AlbertEncoder
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.settings import OptimizerConfig, RunConfig
from lab.benchmarks import (
    fine_tuning,
    inputs,
    measure,
    peers,
    registry,
    report,
    run,
    run_results,
    training_step,
)
from lab.benchmarks.measure import BenchSettings, Measurement
from lab.benchmarks.training_step import PACKED, Step
from tests.data.test_compact_records import make  # noqa: F401 - a fixture
from tests.helpers import BATCH, TINY, pretrain_here, run_script, the_line

SIZES = {name: value for name, value in TINY.to_dict().items() if isinstance(value, int)}
TINY_STEP = Step("ours", batch=BATCH, length=11, changes=tuple(SIZES.items()))


@pytest.fixture
def settings(tmp_path) -> BenchSettings:
    """A quick run into a temporary folder."""
    return BenchSettings(
        quick=True,
        only="disk",
        output_dir=str(tmp_path / "results"),
        work_dir=str(tmp_path / "work"),
    )


# --- Measuring ---


def test_warm_up_is_timed_apart_and_repeats_go_on_until_there_are_enough():
    calls = []
    timing = measure.repeated(lambda: calls.append(1), 0.0, warm_up=2, least=3)
    assert len(calls) == 5
    assert (len(timing["warm_up"]), timing["repeats"], len(timing["samples"])) == (2, 3, 3)
    calls.clear()
    assert measure.repeated(lambda: calls.append(1), 1e6, warm_up=0, most=7)["repeats"] == 7
    assert len(calls) == 7


def test_statistics_are_median_and_spread():
    statistics = measure.statistics_of([5.0, 1.0, 2.0])
    assert (statistics["median"], statistics["min"], statistics["max"]) == (2.0, 1.0, 5.0)


def test_a_measurement_in_its_own_process_and_results_that_are_taken_up(settings, capsys):
    run.main(settings)
    folder = pathlib.Path(settings.output_dir)
    content = json.loads((folder / "results.json").read_text())
    (result,) = content["measurements"].values()
    assert result["status"] == "done" and result["peak_bytes"] > 1e6
    assert result["values"]["write"]["bytes_a_second"] > 0
    assert content["machine"]["cores"] >= 1 and content["versions"]["tensorflow"]
    assert "| disk, written |" in (folder / "table.md").read_text()
    with pytest.raises(UserError, match="holds results; continue them with --resume"):
        run.main(settings)
    capsys.readouterr()
    run.main(BenchSettings(**{**settings.to_dict(), "resume": True}))
    assert "disk" not in capsys.readouterr().out  # it is not made again
    assert json.loads((folder / "results.json").read_text())["measurements"] == {"disk": result}
    with pytest.raises(UserError, match="--quick was 'true' for the results in"):
        run.ResultsFolder(BenchSettings(**{**settings.to_dict(), "resume": True, "quick": False}))


def test_what_fails_or_takes_too_long_says_so(settings):
    failed = measure.in_process("no_such_measurement", settings, 60)
    assert failed["status"] == "failed" and failed["reason"] == "KeyError: 'no_such_measurement'"
    slow = measure.in_process("disk", settings, 0.01)
    assert slow["status"] == "over its time" and "values" not in slow


def test_what_is_not_installed_or_not_asked_for_is_left_out(settings):
    results = run.ResultsFolder(settings)
    absent = Measurement("x", None, needs=("no_such_module",))
    assert run._measured(absent, settings, results, 1) == {
        "status": "left out",
        "reason": "no_such_module is not installed (make peers)",
    }
    without_glue = registry.find("fine_tuning.epochs")
    assert run._measured(without_glue, settings, results, 1)["reason"] == "--glue_dir is not given"
    late = run._measured(registry.find("disk"), settings, results, -1)
    assert late["status"] == "not run"


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


def test_threads_are_left_to_the_libraries(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    environment = measure.environment()
    assert "OMP_NUM_THREADS" not in environment and environment["CUDA_VISIBLE_DEVICES"] == "-1"


# --- Choosing ---


def test_names_are_distinct_and_their_inputs_exist():
    names = [one.name for one in (*registry.MEASUREMENTS, *inputs.INPUTS)]
    assert len(set(names)) == len(names)
    for one in (*registry.MEASUREMENTS, *inputs.INPUTS):
        assert registry.find(one.name) is one
        assert set(one.inputs) <= set(names)


def test_only_takes_names_and_their_beginnings():
    chosen = run.choose(BenchSettings(only="inference,training_step.8x512.float32.ours"))
    names = [one.name for one in chosen]
    assert names[0] == "training_step.8x512.float32.ours"
    assert {"inference.ours", "inference.http"} < set(names)
    assert not any(name.startswith(("limits", "memory")) for name in names)


def test_the_list_needs_no_tensorflow_and_a_wrong_name_is_one_line(no_tensorflow):
    listed = run_script("-m lab.benchmarks.run", "--list", "--quick", **no_tensorflow)
    assert listed.returncode == 0, listed.stderr
    assert "training_step.16x128.float32.ours" in listed.stdout.split()
    assert "memory.large" not in listed.stdout
    wrong = run_script("-m lab.benchmarks.run", "--only=inferences", **no_tensorflow)
    assert the_line(wrong) == (
        "run.py: --only=inferences: no such measurement; --list prints their names"
    )


# --- The same work for all ---


def test_operations_of_a_step_by_hand():
    # B 6, L 11, P 2 (15 % of 11), E 7, D 20, F 19, V 101, 3 layers.
    assert TINY_STEP.predictions == 2
    layer = 4 * 20 * 20 + 2 * 20 * 19 + 2 * 11 * 20
    products = 6 * 11 * (3 * layer + 7 * 20) + 6 * 2 * (20 * 7 + 7 * 101) + 6 * (20 * 20 + 20 * 2)
    assert TINY_STEP.flops == 6 * products
    base = Step("ours", batch=8, length=512)
    assert base.flops == pytest.approx(2.34e12, rel=0.003)


def test_features_are_whole_sequences_with_distinct_masked_positions():
    features = training_step.features_of(TINY_STEP, 5)
    shapes = {name: value.shape for name, value in features.items()}
    assert shapes["input_ids"] == shapes["segment_ids"] == (5, 11)
    assert shapes["masked_lm_ids"] == shapes["masked_lm_weights"] == (5, 2)
    assert features["input_mask"].all()
    assert all(len(set(row)) == 2 for row in features["masked_lm_positions"])
    assert features["input_ids"].max() < 101 and features["masked_lm_positions"].max() < 11


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


def test_the_peers_have_the_same_parameters():
    ours = AlbertEncoder(TINY).count_params()
    assert peers.model_garden_encoder(TINY).count_params() == ours
    transformers = pytest.importorskip("transformers")
    model = transformers.AlbertModel(peers.transformers_config(TINY))
    assert sum(parameter.numel() for parameter in model.parameters()) == ours


def test_our_step_runs():
    with training_step.our_step(TINY_STEP) as call:
        assert measure.repeated(call, 0, least=2, beside=lambda: None)["beside"]["repeats"] == 2


def test_the_step_of_packed_rows_counts_their_examples_and_tokens(settings, make, monkeypatch):  # noqa: F811
    folder = make("packed", record_format="packed", short_seq_prob=1.0)
    monkeypatch.setattr(training_step, "records_path", lambda *_: str(folder))
    changes = {**SIZES, "max_position_embeddings": 64}
    step = Step(PACKED, batch=5, length=64, changes=tuple(changes.items()))
    values = training_step.measure_step(settings, step=step, effort=0, least=1)
    counts = json.loads((folder / "metadata.json").read_text())["counts"]
    assert values["tokens_of_example"] == counts["pieces_in_records"] / counts["examples"] < 64
    examples = values["examples_a_second"] * values["median"]  # of 5 rows
    assert examples == pytest.approx(5 * counts["examples"] / counts["rows"])


@pytest.mark.filterwarnings("ignore:.*did not match any model input")  # of the Garden's own call
@pytest.mark.parametrize("who", ["model_garden", "transformers"])
def test_a_peers_step_runs(who):
    for module in peers.PEERS[who]:
        pytest.importorskip(module)
    step = Step(who, batch=2, length=11, changes=TINY_STEP.changes)
    maker = {
        "model_garden": training_step.model_garden_step,
        "transformers": training_step.transformers_step,
    }[who]
    with maker(step) as call:
        assert measure.repeated(call, 0, least=2)["repeats"] == 2


# --- What is measured on ---


def test_text_is_cut_into_whole_documents_and_repeated_where_it_is_short(settings):
    documents = [f"sentence {number} of it\n" * 3 + "\n" for number in range(20)]
    settings.work.mkdir(parents=True)
    pathlib.Path(inputs.text_path(settings)).write_text("".join(documents))
    size = sum(map(len, documents))
    path, passes = inputs.cut_text(settings, 0.4 * size / 1e6)
    found_documents = pathlib.Path(path).read_text().split("\n\n")[:-1]
    assert found_documents == [one.strip("\n") for one in documents[: len(found_documents)]]
    assert 0.4 * size <= pathlib.Path(path).stat().st_size < 0.5 * size and passes == 1
    path, passes = inputs.cut_text(settings, 2.5 * size / 1e6)
    assert passes == 3
    counts = collections.Counter(pathlib.Path(path).read_text().split("\n\n"))
    assert counts[documents[0].strip("\n")] == 3 and counts[documents[-1].strip("\n")] == 2


def test_batches_of_an_epoch_by_how_they_are_padded():
    lengths = np.array([9] * 64 + [30] * 32 + [100] * 32)
    batches = fine_tuning.batches_of(lengths)
    assert batches["fixed"] == {"128": 4}
    assert batches["buckets"] == {"16": 2, "32": 1, "104": 1}
    assert sum(batches["dynamic"].values()) == 4 and set(batches["dynamic"]) <= {"30", "100"}


# --- Reporting ---


def test_seconds_of_an_epoch_lie_between_the_lengths_that_were_timed():
    lengths = {"32": {"median": 1.0}, "64": {"median": 2.0}}
    assert run_results.epoch_seconds(lengths, {"48": 10, "64": 1}) == pytest.approx(17.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012345, "0.0123"), (4.5678, "4.57"), (789.4, "789"), (12345, "12,300"), (0, "0")],
)
def test_three_digits_count(value, text):
    assert report.number(value) == text


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
    "commit": "abc",
    "settings": {"quick": False},
    "measurements": {
        "matrix_products.float32": done(**{"4096": {"rate": 500e9}, "2048": {"rate": 400e9}}),
        "training_step.8x512.float32.ours": done(
            **timing(6.0), flops=2.4e12, examples_a_second=8 / 6
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
        "step_parts.8x512.float32": done(parts={"attention": {**timing(0.125), "calls": 12}}),
        "memory.base.8x512.ours_recomputed": done(**timing(7.0), peak_bytes=1.25e9),
        "input_pipeline.512.full": done(
            **timing(1.0), batch=10, batches=2, record_bytes=3000.0, examples_a_second=20.0
        ),
        "growth.length.128": done(**timing(1.2)),
        "growth.layers.24": done(**timing(2.4)),
        "preparation.dupe_10": done(
            **timing(2.0),
            text_bytes=5e6,
            dupe_factor=10,
            length=512,
            num_workers=2,
            passes_of_corpus=1,
            examples_a_second=31_367 * 1.5,
            text_bytes_a_second=2.5e6,
            all_processes_bytes=9e8,
        ),
    },
}


def test_the_table_says_what_was_reached_missed_and_left_out(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    report.write(tmp_path)
    text = (tmp_path / "table.md").read_text()
    rows = [tuple(re.split(r" *\| *", line)[1:-1]) for line in text.splitlines() if "|" in line]
    # 2.4e12 operations at 500e9 a second are 4.8 s, 80 % of 6 s.
    assert (
        "training step, base 8x512, float32: share of the matrix-product limit",
        *("85%", "80%", "**missed**"),
    ) in rows
    faster = "training step, base 8x512, float32: faster than every peer"
    assert (faster, "> 1 x", "1.50 x TF Model Garden", "disturbed") in rows
    assert (
        "data preparation, --dupe_factor=10, 5 MB",
        *("100 x the original", "150 x", "reached"),
    ) in rows
    memory = "data preparation, memory of all processes, any corpus"
    assert (memory, "0.80 GB", "0.90 GB", "**missed**") in rows
    ours = ("albert-tf", "6.00 (5.40 to 6.60)", "1.33", "333", "400", "80%", "1.00", "2.00")
    assert ours in rows
    # 16 examples in 6.4 s are 2.5 a second.
    of_packed = ("albert-tf, packed rows", "6.40 (5.76 to 7.04)", "2.50", "625")
    assert (*of_packed, "375", "75%", "0.53", "2.00") in rows
    packed = "training step, base 8x512, float32, packed rows: examples/s, multiple of "
    assert (f"{packed}single examples", "1.8 x", "1.88 x", "reached") in rows
    peers_title = packed.replace("float32, packed", "float32: packed")
    assert (f"{peers_title}every peer", "> 2 x", "2.81 x TF Model Garden", "disturbed") in rows
    assert "at length 512 250 tokens, 49% of a row, so that full rows hold 2.05 times" in text
    assert ("attention", "1,500") in rows
    # The pipeline's 20 examples a second, divided by those of the fastest step.
    assert any(row[:3] == ("512", "full", "no") and row[5] == "8.00" for row in rows)
    recomputed = (
        "| albert-base 8x512 | 2.00 GB, 6.00 s | 2.00 GB, 6.40 s | 2.00 GB, 9.00 s | left out"
        " | 1.25 GB, 7.00 s |"
    )
    assert recomputed in text.splitlines()
    assert "- `training_step.8x512.float32.transformers`: left out: torch is not installed" in text
    assert "model_garden (50%)" in text  # others had half of the processors
    for name in ("training_step.png", "memory.png", "growth.png"):
        assert f"]({name})" in text and (tmp_path / name).stat().st_size > 5000


def test_engines_have_their_times_and_the_difference_of_their_logits():
    sizes = ("1x32", "1x128", "8x32", "1x384")
    cells = {size: timing(0.01 * number) for number, size in enumerate(sizes, 1)}
    measurements = {
        "engines.saved_model": done(cells=cells, sample=[[1.0, 2.0]]),
        "engines.tflite_int8": done(cells={"1x32": timing(0.03)}, sample=[[1.0, 2.25]]),
        "engines.openvino": {"status": "left out", "reason": "openvino is not installed"},
    }
    lines = report.inference_engines(run_results.RunResults({"measurements": measurements}))
    assert len(lines) == 4
    assert lines[2] == (
        "| SavedModel, ids | 10.0 (9.00 to 11.0) | 20.0 (18.0 to 22.0) | 30.0 (27.0 to 33.0)"
        " | 40.0 (36.0 to 44.0) |  | 2.00 |"
    )
    assert lines[3] == (
        "| TFLite `dynamic_int8` in LiteRT | 30.0 (27.0 to 33.0) |  |  |  | 2.5e-01 | 2.00 |"
    )
    assert not report.inference_engines(run_results.RunResults({"measurements": {}}))


def test_the_limit_between_the_repeats_counts():
    ours = RESULTS["measurements"]["training_step.8x512.float32.ours"]
    values = {**ours["values"], "limit": 400e9}
    measurements = {
        **RESULTS["measurements"],
        "training_step.8x512.float32.ours": {**ours, "values": values},
    }
    held = run_results.RunResults({**RESULTS, "measurements": measurements})
    assert held.limit_alone("8x512", "float32") == 500e9
    # 2.4e12 operations at 400e9 a second are 6 s.
    assert held.share("8x512", "float32", "ours") == pytest.approx(1.0)
    assert held.share("8x512", "float32", "model_garden") == pytest.approx(2 / 3)


def test_growth_takes_the_common_point_from_where_it_was_measured():
    points = run_results.growth_points(run_results.RunResults(RESULTS))
    assert [size for size, _ in points["length"]] == [128, 512]
    assert [(size, values["median"]) for size, values in points["layers"]] == [(12, 1.2), (24, 2.4)]


def test_the_same_sizes_go_to_transformers():
    pytest.importorskip("transformers")
    theirs = peers.transformers_config(AlbertConfig.from_name("albert-large-v2"))
    assert (theirs.hidden_size, theirs.num_hidden_layers, theirs.hidden_act) == (
        *(1024, 24, "gelu_new"),
    )
    assert theirs.hidden_dropout_prob == 0 and theirs.attention_probs_dropout_prob == 0
