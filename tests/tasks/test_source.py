"""Features are the same, however many processes make them."""

import dataclasses

import pytest

from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks import source
from tests.helpers import run_script, the_line


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


def test_a_missing_column_is_found_before_tensorflow_is_loaded(no_tensorflow, tmp_path):
    (tmp_path / "t.csv").write_text("text,label\na,b\nc,d\n")
    flags = [
        f"--train_file={tmp_path / 't.csv'}",
        "--init_checkpoint=.",
        f"--output_dir={tmp_path}/run",
    ]
    process = run_script("-m albert_tf classify", *flags, "--text_columns=txt", **no_tensorflow)
    assert "has no column 'txt', only 'text', 'label'" in the_line(process)
    process = run_script("-m albert_tf embed", *flags, "--text_columns=text,other", **no_tensorflow)
    assert "has no column 'other', only 'text', 'label'" in the_line(process)
