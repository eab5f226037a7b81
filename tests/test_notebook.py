"""The notebook: all its code runs, from top to bottom, in a process of its own."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.helpers import ROOT

NOTEBOOK = ROOT / "docs" / "albert.ipynb"


def cells(kind: str) -> list[str]:
    """The sources of the cells of a kind, in order."""
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    code = "\n\n".join(cells("code"))
    assert code.count("SHORT = False") == 1
    script = tmp_path / "notebook.py"
    script.write_text(code.replace("SHORT = False", "SHORT = True"))
    process = subprocess.run(
        [sys.executable, script],
        cwd=NOTEBOOK.parent,  # where Jupyter starts a notebook
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    (label,) = re.findall(r"the export says: (\w+)", process.stdout)
    assert f"  {label} " in process.stdout  # among the classifier's labels, too
    (difference,) = re.findall(r"largest difference of a probability: (\S+)", process.stdout)
    assert float(difference) < 1e-5
    assert re.search(r"^folded +0.\d\d ", process.stdout, re.MULTILINE)
