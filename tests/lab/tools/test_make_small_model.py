"""Which packages' documentation the small model is trained on: those with permissive licenses alone."""

import email
from types import SimpleNamespace

import pytest

from lab.tools import make_small_model


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
def test_only_permissive_licenses_are_recognized(metadata, expected):
    package = SimpleNamespace(metadata=email.message_from_string(metadata))
    assert make_small_model.license(package) == expected


def test_a_folder_that_also_belongs_to_another_license_is_left_out(tmp_path, monkeypatch):
    def package(name, license, *files):
        files = [tmp_path.joinpath(file).relative_to(tmp_path) for file in files]
        metadata = email.message_from_string(f"License-Expression: {license}")
        return SimpleNamespace(
            name=name, version="1.2", metadata=metadata, files=files, locate_file=tmp_path.joinpath
        )

    installed = [
        package("free", "MIT", "free/a.py", "shared/a.py", "free/table.csv"),
        package("copyleft", "GPL-3.0-only", "copyleft/a.py", "shared/b.py"),
    ]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: installed)
    python, *sources = make_small_model.permissive_sources()
    assert python.license == "PSF-2.0"
    assert sources == [(str(tmp_path / "free"), ("free 1.2",), "MIT")]
