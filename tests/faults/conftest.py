"""Prints the figures of the tests of faults as a table; docs/reliability.md has their sums."""

import collections

COLUMNS = ("changes", "kills", "ENOSPC", "EIO", "lasting", "power", "restarts", "seconds")


def pytest_terminal_summary(terminalreporter):
    """Adds up the property "faults" of the tests that passed, by program."""
    rows = collections.defaultdict(collections.Counter)
    for report in terminalreporter.stats.get("passed", ()):
        if figures := dict(dict(report.user_properties).get("faults", {})):
            rows[figures.pop("program")].update(figures)
    if not rows:
        return
    total = collections.Counter()
    for row in rows.values():
        total.update(row)
    terminalreporter.section("faults survived")
    terminalreporter.write_line("| program | " + " | ".join(COLUMNS) + " |")
    terminalreporter.write_line("|---" * (1 + len(COLUMNS)) + "|")
    for name, row in [*rows.items(), ("total", total)]:
        cells = [f"{round(row[column]):,}" for column in COLUMNS]
        terminalreporter.write_line(f"| {name} | " + " | ".join(cells) + " |")
