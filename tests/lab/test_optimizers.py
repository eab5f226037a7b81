"""`lab.optimizers`: which runs are made, and the table of their scores."""

import pytest

from albert_tf.core.errors import UserError
from lab import optimizers
from lab.optimizers import Cell


def test_every_rate_is_tried_with_the_first_seed_and_the_best_with_further_seeds():
    scores = {"adamw, 0.0001": 0.7, "adamw, 0.0003": 0.8, "muon, 0.0003": 0.6}
    results = {
        "STS-B, muon, 0.001, seed 1": {"pearson": 0.9},
        "STS-B, muon, 0.003, seed 1": {"pearson": 0.5},
        **{f"STS-B, {name}, seed 1": {"pearson": score} for name, score in scores.items()},
    }
    cells = list(optimizers.cells(results, ["STS-B"], num_seeds=2))
    assert cells[:5] == [
        Cell("STS-B", "adamw", 1e-4, 1),
        Cell("STS-B", "adamw", 3e-4, 1),
        Cell("STS-B", "muon", 3e-4, 1),
        Cell("STS-B", "muon", 1e-3, 1),
        Cell("STS-B", "muon", 3e-3, 1),
    ]
    assert cells[5:] == [Cell("STS-B", "adamw", 3e-4, 2), Cell("STS-B", "muon", 1e-3, 2)]


def test_the_table_has_the_median_of_the_seeds_and_their_range():
    results = {
        f"STS-B, muon, 0.001, seed {seed}": {"pearson": score}
        for seed, score in enumerate((0.81, 0.83, 0.84), start=1)
    }
    assert optimizers.table_of(results)[-1] == (
        "| STS-B | pearson | muon | 0.001 | 83.0 | 81.0 to 84.0 | 3 |"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"tasks": "STS-B,MRPC"}, "tasks names MRPC"), ({"tasks": "STS-B"}, "data_dir is required")],
)
def test_unknown_tasks_and_missing_data_are_rejected(settings, message):
    with pytest.raises(UserError, match=message):
        optimizers.OptimizerSettings(**settings)
