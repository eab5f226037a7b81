"""Features are the same, however many processes make them."""

import dataclasses

import pytest

from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks import source


@dataclasses.dataclass(frozen=True)
class Repeat:
    """Settings of `repeated`."""

    times: int


def repeated(settings: Repeat, items) -> FeatureTable:
    """A function that worker processes can import."""
    rows = [[number] * settings.times for number in items]
    return FeatureTable.from_rows({"input_ids": rows}, {"label_ids": items})


@pytest.mark.parametrize("seconds_alone", [0, 60])
@pytest.mark.parametrize("count", [0, 1, 500, 1203])
def test_chunks_and_processes_do_not_change_features(monkeypatch, seconds_alone, count):
    monkeypatch.setattr(source, "_SECONDS_ALONE", seconds_alone)
    items = [*range(count)]
    table = source.make_features(repeated, Repeat(3), items)
    assert table.sha256() == repeated(Repeat(3), items).sha256()
