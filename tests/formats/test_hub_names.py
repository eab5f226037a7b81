"""Models by name: what is asked of huggingface_hub, and its errors in one line."""

import sys
import types

import pytest

from albert_tf import UserError
from albert_tf.formats import hub_names
from tests.helpers import ROOT

RECORDED_MODEL = ROOT / "tests" / "recorded_outputs" / "pretraining"


def install(monkeypatch, download) -> None:
    module = types.ModuleType("huggingface_hub")
    module.snapshot_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)


def test_a_model_is_downloaded_without_what_is_not_read(monkeypatch, tmp_path):
    calls = []

    def download(model, **arguments):
        calls.append((model, arguments))
        return str(RECORDED_MODEL if model == "albert/tiny" else tmp_path)

    install(monkeypatch, download)
    assert hub_names.fetched("hf:albert/tiny@v1") == str(RECORDED_MODEL)
    [(model, arguments)] = calls
    assert (model, arguments["revision"]) == ("albert/tiny", "v1")
    assert "*.safetensors" in arguments["allow_patterns"]
    assert "*.bin" not in arguments["allow_patterns"]
    # A model without safetensors.
    hub_names.fetched("hf:old")
    assert [("*.bin" in rest["allow_patterns"]) for _, rest in calls[1:]] == [False, True]


def test_errors_of_the_library_are_one_line(monkeypatch):
    def download(*_, **__):
        raise OSError("no connection\nat all")

    install(monkeypatch, download)
    with pytest.raises(UserError, match=r"^hf:albert/tiny: .* \(no connection\)$"):
        hub_names.fetched("hf:albert/tiny")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match="pip install huggingface_hub"):
        hub_names.fetched("hf:albert/tiny")
