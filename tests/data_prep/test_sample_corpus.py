"""The documentation of installed packages: hand-made modules with exact sentences, then invariants, the real thing."""

import pytest

from albert_tf.core.errors import UserError
from albert_tf.data_prep import sample_corpus
from albert_tf.data_prep.sample_corpus import SampleSettings
from tests.helpers import documents_in, write_files

GEOMETRY = '''
"""Shapes in the plane.

Every shape knows its :func:`area <geometry.area>`, and can be moved, see
:class:`~geometry.base.Point`.  All angles are ``float`` values in *radians*.

    square = Square(3)
    square.move(1, 2)

Use it like this::

    This sentence is code, although it reads like text.

.. note::
   Shapes that lie outside of the plane are not supported.

.. math::
   This is a formula and no sentence at all.

====  ====================
Name  This is a heading.
====  ====================

+--------------------------+
| This is a table of text. |
+--------------------------+

>>> area(Square(3))
This is what the interpreter answers.
"""

def area(shape, unit, exact=False):
    """Returns the area of a shape.

    Args:
      shape: A shape with sides that
        do not cross each other.
      unit: int
      exact (bool): If true, then the area is a fraction. See `the
        manual <https://example.com/manual>`_ for more about it.

    Returns:
      A tensor of shape `[batch, 2]`.
      The area in the **unit** that was given.

    ```python
    This is fenced and therefore code.
    ```
    """

def grow(shape, factor):
    """Makes a shape larger than it was.

    Parameters
    ----------
    factor : float, optional
        The factor by which every side becomes longer.

    Notes
    -----
    - The first remark is
      about rounding of numbers.
    - The second remark is about time.
    """

def _hidden():
    """This function is of no interest to anyone outside."""

class Square:
    """A square with sides that are parallel to the axes."""

    def __init__(self, side):
        """Makes a square at the origin of the plane."""

    async def move(self, by):
        """Moves the square to another place.

        :param by: The vector by which the square is moved.
        :raises ValueError: if it leaves the plane.
        """

    @property
    def side(self):
        """The length of one side, in metres – or in ångströms."""

class _Helper:
    """This class is hidden. It has several sentences. None of them is kept. Not even this."""
'''

GEOMETRY_DOCUMENTS = [
    [
        "Shapes in the plane.",
        "Every shape knows its area, and can be moved, see Point.",
        "All angles are float values in radians.",
        "Returns the area of a shape.",
        "A shape with sides that do not cross each other.",
        "If true, then the area is a fraction.",
        "See the manual for more about it.",
        "The area in the unit that was given.",
        "Makes a shape larger than it was.",
        "The factor by which every side becomes longer.",
        "The first remark is about rounding of numbers.",
        "The second remark is about time.",
    ],
    [
        "A square with sides that are parallel to the axes.",
        "Makes a square at the origin of the plane.",
        "Moves the square to another place.",
        "The vector by which the square is moved.",
        "The length of one side, in metres – or in ångströms.",
    ],
]


def settings_for(folder, **changes):
    values = {
        "input_file": str(folder / "in"),
        "output_file": str(folder / "out.txt"),
        "num_workers": 1,
    }
    return SampleSettings(**{**values, **changes})


def sample(folder, files, **changes):
    write_files(folder / "in", files)
    sample_corpus.main(settings_for(folder, **changes))
    return documents_in(folder / "out.txt")


def module(name, num_sentences=5):
    """A source file whose documentation has sentences that occur nowhere else."""
    sentences = [f"The {name} has a property of number {index}." for index in range(num_sentences)]
    return '"""' + "\n".join(sentences) + '"""\n'


def test_documents_of_a_module(tmp_path):
    assert sample(tmp_path, {"geometry.py": GEOMETRY}) == GEOMETRY_DOCUMENTS


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("See :class:`~ast.Node`, ``x`` and **[this](http://a.b)**.", "See Node, x and this."),
        (":mod:`os.path` and :ref:`a page <target>` [1]_.", "os.path and a page."),
        ("`text <http://a.b>`_ and link_.", "text and link."),
        ("Two*three*four, <b>bold</b> <br/>text.", "Two*three*four, bold text."),
        ("a  b\n c", "a b c"),
    ],
)
def test_strips_markup(marked, plain):
    assert sample_corpus.strip_markup(marked) == plain


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Returns the sum of its arguments.", True),
        ("“Über” is a German word, isn't it?", True),
        ("The argument max_size says how many there are.", True),
        ("Pass max_size and min_size to the function.", False),
        ("returns the sum of its arguments.", False),
        ("Returns the sum of its arguments", False),
        ("Returns a sum.", False),
        ("Returns x[0] plus the other argument.", False),
        ("The value is computed by f(x) here.", False),
        ("Call it with x = y and no more.", False),
        ("See https://example.com for the rest.", False),
        ("The numbers 1, 2, 3, 4, 5, 6 are here.", False),
        ("For more about this see.", False),
        ("If the file does not exist.", False),
        ("This one (has an open bracket.", False),
        ("And so it goes on ...", False),
    ],
)
def test_knows_prose(sentence, expected):
    assert sample_corpus.is_prose(sentence) is expected


def test_sorts_modules_and_leaves_out_tests_and_generated_code(tmp_path, capsys):
    files = {
        "b/y.py": module("bee"),
        "a.py": module("ant"),
        "a/x.py": module("fox"),
        "b/tests/y.py": module("test"),
        "b/test_y.py": module("other test"),
        "b/y_pb2.py": module("message"),
        "b/_api/y.py": module("copy"),
        "b/made.py": "# Generated by a program.\n" + module("machine"),
        "b/notes.txt": module("text"),
        "b/python2.py": module("snake") + "print 'hello'\n",
        "b/latin.py": b"# -*- coding: latin-1 -*-\n" + module("caf\u00e9").encode("latin-1"),
        "b/bytes.py": b'"""' + b"\xff" * 200 + b'"""',
        "b/escape.py": module("escape") + "pattern = '\\d'\n",
    }
    documents = sample(tmp_path, files)
    names = [document[0].split(" has")[0] for document in documents]
    assert names == ["The ant", "The fox", "The escape", "The café", "The bee"]
    assert "8 modules -> 5 documents, 25 sentences" in capsys.readouterr().err


def test_repetitions_are_dropped(tmp_path):
    files = {
        "a.py": module("ant"),
        "b.py": module("ant", 9) + "# other\n",
        "c.py": module("ANT", 13),
    }
    assert [len(doc) for doc in sample(tmp_path, files)] == [5, 4, 4]


def test_workers_and_chunks_do_not_change_the_output(tmp_path, monkeypatch):
    write_files(
        tmp_path / "in", {f"m{index:02}.py": module(f"m{index % 35}") for index in range(40)}
    )
    outputs = []
    for num_workers, chunk_bytes in ((1, 1_000_000), (1, 300), (3, 1000)):
        monkeypatch.setattr(sample_corpus, "CHUNK_BYTES", chunk_bytes)
        sample_corpus.main(settings_for(tmp_path, num_workers=num_workers))
        outputs.append((tmp_path / "out.txt").read_bytes())
    assert outputs[0] == outputs[1] == outputs[2]


def test_documents_of_a_module_are_held_out_together(tmp_path):
    files = {
        f"m{index}.py": module(f"module m{index}") + f"class C:\n  {module(f'class of m{index}')}"
        for index in range(60)
    }
    evaluation = tmp_path / "eval.txt"
    training = sample(tmp_path, files, eval_fraction=0.3, eval_output_file=str(evaluation))
    held_out = documents_in(evaluation)
    assert len(training) + len(held_out) == 120
    training_names, held_out_names = (
        {sentence.split()[-7] for document in side for sentence in document}
        for side in (training, held_out)
    )
    assert len(training_names) + len(held_out_names) == 60
    assert 8 < len(held_out_names) < 30


def test_stops_at_the_size_asked_for(tmp_path):
    files = {f"m{index:02}.py": module(f"m{index:02}") for index in range(40)}
    size_of_document = len(module("m00")) - len('""""""\n') + 2
    documents = sample(tmp_path, files, max_megabytes=2.5 * size_of_document / 1e6)
    assert [document[0].split()[1] for document in documents] == ["m00", "m01", "m02"]


def test_wrong_input(tmp_path):
    with pytest.raises(UserError, match="no Python file there"):
        sample(tmp_path, {"a.txt": "text"})
    with pytest.raises(UserError, match="no document is left"):
        sample(tmp_path, {"a.py": module("ant", 2)})
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.rare
def test_the_standard_library_is_a_corpus(tmp_path):
    settings = SampleSettings(
        output_file=str(tmp_path / "out.txt"), max_megabytes=0.2, num_workers=1
    )
    assert len(sample_corpus.find_modules("")) > 500
    sample_corpus.main(settings)
    size = (tmp_path / "out.txt").stat().st_size
    assert 200_000 <= size < 250_000


def test_a_module_is_not_overwritten(tmp_path):
    write_files(tmp_path, {"a.py": module("a")})
    path = str(tmp_path / "a.py")
    with pytest.raises(UserError, match="a.py"):
        settings_for(tmp_path, input_file=path, output_file=path).check_with({})
