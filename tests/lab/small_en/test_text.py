"""The text of the small English model: prose stays, everything else goes."""

import json

import pytest

from albert_tf.core.errors import UserError
from lab.small_en.text import TextSettings, main

BOOK = """CONTENTS

Chapter I . . . . . . . . 7

[Illustration: The old mill.]

E-text prepared by a team of proofreaders.

The miller had two sons,
and _both_ of them went away.[1]

"Come back!" he cried.
"""
WIKI = """<doc id="1" title="Stub">
Stub

A short page about nothing.

</doc>
<doc id="2" title="Mill">
Mill

{long}
History.
A heading without a period at its end
</doc>
"""


def test_prose_is_kept_and_written_once(tmp_path):
    for name in ("books/a.txt", "books/b.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(BOOK.replace("away.[1]", f"away, {'and ' * 300}stayed."))
    long = f"A mill () &amp; its {'very ' * 60}old wheel."
    (tmp_path / "wikipedia").mkdir()
    (tmp_path / "wikipedia" / "wiki_00").write_text(WIKI.format(long=long))
    main(TextSettings(data_dir=str(tmp_path), output_dir=str(tmp_path / "out")))
    (book,) = (tmp_path / "out" / "books.jsonl").read_text().splitlines()
    first, second = json.loads(book)["text"].split("\n")
    assert first.startswith("The miller had two sons, and both of them went away, and and")
    assert second == '"Come back!" he cried.'
    (page,) = (tmp_path / "out" / "wikipedia.jsonl").read_text().splitlines()
    assert json.loads(page)["text"] == f"A mill & its {'very ' * 60}old wheel."


def test_a_folder_without_text_is_rejected_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match=r"expected books/.*; change --data_dir"):
        main(TextSettings(data_dir=str(tmp_path), output_dir=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
