"""The notebook: all its code runs, from top to bottom, in a process of its own."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.helpers import ROOT

NOTEBOOK = ROOT / "docs" / "start" / "albert.ipynb"
# What is replaced in its code, so that it runs in a minute.
SMALLER = {
    "num_train_epochs=3": "num_train_steps=3",
    "num_train_steps=90": "num_train_steps=3",
    "num_warmup_steps=10": "num_warmup_steps=1",
    "eval_every_steps=30": "eval_every_steps=3",
    "log_every_steps=30": "log_every_steps=1",
    "lines[200:]": "lines[20:60]",
    "lines[:200]": "lines[:20]",
    "print()\n": """
header, *rows = (WORK / "parts" / "train.tsv").read_text().splitlines()
rows = [header, *rows[:: len(rows) // 40]]
for name in ("train.tsv", "dev.tsv"):
    (WORK / "parts" / name).write_text("\\n".join(rows) + "\\n")
""",
}


def cells(kind: str) -> list[str]:
    """The sources of the cells of a kind, in order."""
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("folder", [NOTEBOOK.parent, ROOT / "docs", ROOT], ids=lambda f: f.name)
def test_the_notebook_finds_the_models_from_each_folder_in_which_it_may_be_started(
    folder, tmp_path, monkeypatch
):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0"))
    monkeypatch.chdir(folder)
    names: dict = {}
    exec(cells("code")[0], names)
    assert names["PROJECT"] == ROOT
    assert (names["MODEL"] / "config.json").exists()


def test_the_outputs_that_the_notebook_stores_are_of_cells_in_order():
    notebook = json.loads(NOTEBOOK.read_text())
    numbers = [cell["execution_count"] for cell in notebook["cells"] if "outputs" in cell]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    code = "\n\n".join(cells("code"))
    for original, smaller in SMALLER.items():
        assert code.count(original) == 1, original
        code = code.replace(original, smaller)
    script = tmp_path / "notebook.py"
    script.write_text(code)
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
