"""Which packages' documentation the small model is trained on: those with permissive licences alone."""

import email
from types import SimpleNamespace

import pytest

from lab.tools import make_small_model
from tests.helpers import ROOT


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("License-Expression: BSD-3-Clause AND MIT", "BSD-3-Clause AND MIT"),
        ("License-Expression: MPL-2.0 AND MIT", ""),
        ("License-Expression: Apache-2.0 OR BSD-2-Clause", "Apache-2.0 OR BSD-2-Clause"),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT"),
        (
            "Classifier: License :: OSI Approved :: MIT License\n"
            "Classifier: License :: OSI Approved :: GNU General Public License (GPL)",
            "",
        ),
        ("License: Apache 2.0", "Apache-2.0"),
        ("License: Artistic License", ""),
        ("Name: states-nothing", ""),
    ],
)
def test_only_permissive_licences_are_recognized(metadata, expected):
    package = SimpleNamespace(metadata=email.message_from_string(metadata))
    assert make_small_model.licence(package) == expected


def test_a_folder_that_also_belongs_to_another_licence_is_left_out(tmp_path, monkeypatch):
    def package(name, licence, *files):
        files = [tmp_path.joinpath(file).relative_to(tmp_path) for file in files]
        metadata = email.message_from_string(f"License-Expression: {licence}")
        return SimpleNamespace(
            name=name, version="1.2", metadata=metadata, files=files, locate_file=tmp_path.joinpath
        )

    installed = [
        package("free", "MIT", "free/a.py", "shared/a.py", "free/table.csv"),
        package("copyleft", "GPL-3.0-only", "copyleft/a.py", "shared/b.py"),
    ]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: installed)
    python, *sources = make_small_model.permissive_sources()
    assert python.licence == "PSF-2.0"
    assert sources == [(str(tmp_path / "free"), ("free 1.2",), "MIT")]


def test_every_step_of_the_plan_names_a_result_and_a_program():
    settings = make_small_model.SmallModelSettings(work_dir="work", output_dir="out")
    plan = list(make_small_model.steps(settings, []))
    assert len({result for result, _, _ in plan}) == len(plan) == 7
    programs = {
        program.removeprefix("-m ").replace(".", "/").removesuffix("/py") for _, program, _ in plan
    }
    assert all((ROOT / f"{program}.py").exists() for program in programs)
