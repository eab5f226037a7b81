"""Tables within pages that people write; each is between two comments, and is written again from its data."""

from collections.abc import Sequence


def with_table(page: str, name: str, lines: Sequence[str]) -> str:
    """A page whose part between `<!-- table NAME -->` and `<!-- end -->` has these lines, if it has that part."""
    before, start, rest = page.partition(f"<!-- table {name} -->\n")
    if not start:
        return page
    own = "\n".join(["", *lines, "", ""])
    return f"{before}{start}{own}<!-- end{rest.partition('<!-- end')[2]}"
