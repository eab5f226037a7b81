"""What must stay equal is compared value by value."""

import json

from lab import equality


def test_values_are_equal_near_or_different(tmp_path):
    before = {"a": {"x": [1.0, 2.0], "y": "one", "n": [{"z": 1}]}, "gone": 1}
    after = {"a": {"x": [1.0, 2.00001], "y": "two", "n": [{"z": 1}]}}
    paths = [tmp_path / name for name in ("before.json", "after.json")]
    for path, values in zip(paths, (before, after), strict=True):
        path.write_text(json.dumps({"values": values}))
    lines = equality.compare(*map(str, paths))[2:]
    assert lines[0].startswith("| a.x | near, by 1e-05: ")
    assert lines[1] == "| a.y | different: one / two |"
    assert lines[2:] == ["| a.n.0.z | equal |", "| gone | different: 1 / None |"]


def test_data_is_the_same_in_every_process():
    assert equality.digest(equality.corpus(1, 2)) == equality.digest(equality.corpus(1, 2))
    assert equality.corpus(1, 2).count("\n\n") == 2
