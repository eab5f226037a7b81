"""What the page about clusters computes from a small run."""

import pytest

from lab.benchmarks import engines_report

CONTENT = {
    "about": {"cores": 2, "passes": 10},
    "start": {"processor_seconds": 1.5},
    "runs": {
        "local:1": {"seconds": [14.0, 12.0], "processor_seconds": [14.0, 13.0]},
        "local:2": {"seconds": [8.0, 10.0, 7.0], "processor_seconds": [14.0, 14.0, 14.0]},
        "dask:2": {"seconds": [12.0, 11.0, 9.1], "processor_seconds": [21.0, 17.5, 14.0]},
        "portable:2": {"seconds": [20.0], "processor_seconds": [30.0]},
    },
    "text": {
        "text_bytes": 25_000_000,
        "blocks": 24,
        "sentences": 347_659,
        "tokens": 5_520_048,
        "examples": 217_160,
        "shards": 64,
    },
    "driver": {"items": 1500, "milliseconds": 5.0},
}


def test_ratios_are_to_the_local_engine_in_the_same_round():
    row = engines_report.row(CONTENT, "dask:2")
    # Medians 11.0 / 8.0 would give 1.38; the rounds' ratios are 1.5, 1.1, 1.3.
    assert row == ["dask", "2", "11.0", "17.5", "1.30", "1.25", "20%"]


def test_without_a_local_run_there_are_no_ratios():
    alone = {**CONTENT, "runs": {"portable:2": CONTENT["runs"]["portable:2"]}}
    assert engines_report.row(alone, "portable:2")[4:6] == ["", ""]


def test_the_small_run_itself_has_its_own_blocks_and_shards():
    run = engines_report.large(CONTENT, 25_000_000)
    assert (run.num_blocks, run.num_shards) == (24, 64)
    # A shard takes about 67 of 24 * 10 * 18 slices of passes; they are from 22.6 of the 24 blocks.
    bytes_of_a_block = (2 * 5_520_048 + 20 * 217_160) / 24
    assert run.bytes_read == pytest.approx(64 * 22.6 * bytes_of_a_block)
    assert run.work_seconds == pytest.approx(13.5 - 1.5)
    assert run.driver_seconds == pytest.approx(88 * 0.005)
    assert run.busy_workers == 27


def test_a_large_text_has_more_shards_which_read_a_part_of_the_blocks():
    run = engines_report.large(CONTENT, 20_000_000_000)
    assert run.num_blocks == 19074
    assert run.num_shards == 4599
    blocks_of_a_shard = run.bytes_read / run.num_shards / (15_383_296 / 24)
    assert 64 < blocks_of_a_shard < 128


def test_from_some_size_on_there_is_work_for_all_workers():
    least = engines_report.least_text(CONTENT)
    enough = engines_report.large(CONTENT, least * 1_000_000)
    assert min(enough.num_blocks, enough.num_shards) >= engines_report.NUM_WORKERS
    fewer = engines_report.large(CONTENT, (least - 50) * 1_000_000)
    assert min(fewer.num_blocks, fewer.num_shards) < engines_report.NUM_WORKERS
