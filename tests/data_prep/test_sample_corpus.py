"""The documentation of installed packages: a hand-made module with exact sentences, the task, the real thing."""

import csv

from albert_tf.data_prep import sample_corpus
from albert_tf.data_prep.sample_corpus import SampleSettings
from tests.helpers import documents_in, write_files

GEOMETRY = '''
"""Shapes in the plane.

Every shape knows its :func:`area`, and can be moved.  All angles are ``float``
values in *radians*.

    this(is_code).and_so_on.

>>> area(Square(3))
This is what the interpreter answers.
"""

def area(shape):
    """Returns the area of a shape.

    Args:
      shape: A shape with sides.

    Every shape has an area, which is returned. See x[0] for more.
    """

class Square:
    """A square with sides that are parallel to the axes. Every shape knows its area, and can be moved."""
'''


def sample(tmp_path, sources, **changes):
    """The documents of the sources below a folder."""
    write_files(tmp_path / "packages", sources)
    values = {"input_file": str(tmp_path / "packages"), "output_file": str(tmp_path / "out.txt")}
    sample_corpus.main(SampleSettings(num_workers=1, **values | changes))
    return documents_in(tmp_path / "out.txt")


def test_only_prose_is_kept_and_each_sentence_once(tmp_path):
    broken = {"b.py": f'"""{"Never closed. " * 20}', "c/test_it.py": GEOMETRY, "d.py": GEOMETRY}
    assert sample(tmp_path, {"a.py": GEOMETRY, **broken}) == [
        [
            "Shapes in the plane.",
            "Every shape knows its area, and can be moved.",
            "All angles are float values in radians.",
            "Returns the area of a shape.",
            "Every shape has an area, which is returned.",
            "A square with sides that are parallel to the axes.",
        ]
    ]


def module(package, number):
    sentences = [
        f"The method {number} of this {package[0]} {verb} {number} rows." for verb in "abcd"
    ]
    return f'"""{" ".join([*sentences, f"The package {package} is {number}.", "So it is."])}"""'


def test_passages_have_the_package_as_label_and_do_not_name_it(tmp_path):
    names = [f"{letter}_package" for letter in "abcdefg"]
    sources = {f"{n}/m{k}.py": module(n, k) for n in names for k in range(24 if n > "b" else 9)}
    sample(tmp_path, sources, task_dir=str(tmp_path / "task"))
    rows = {}
    for name in ("train", "dev"):
        with open(tmp_path / "task" / f"{name}.tsv") as file:
            rows[name] = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows["train"]) > 3 * len(rows["dev"]) > 30
    for row in rows["train"] + rows["dev"]:
        assert f"of this {row['package'][0]} " in row["text"] and row["package"] not in row["text"]
    assert {row["package"] for row in rows["train"]} == set(names) - {"a_package"}
    modules = [{row["text"].split()[2] + row["package"] for row in rows[name]} for name in rows]
    assert not modules[0] & modules[1]
