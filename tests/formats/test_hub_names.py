"""Models by name: what is asked of huggingface_hub, and its errors in one line."""

import json
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


@pytest.mark.parametrize(
    ("in_torch", "expected"), [((), 1), (("",), 2), (("2_Dense",), 2), (("", "2_Dense"), 2)]
)
def test_files_of_torch_are_downloaded_where_a_module_has_no_others(
    in_torch, expected, monkeypatch, tmp_path
):
    modules = {"": "models.Transformer", "1_Pooling": "models.Pooling", "2_Dense": "models.Dense"}
    entries = [{"path": path, "type": kind} for path, kind in modules.items()]
    (tmp_path / "modules.json").write_text(json.dumps(entries))
    for path in ("", "2_Dense"):
        if path not in in_torch:
            (tmp_path / path).mkdir(exist_ok=True)
            (tmp_path / path / "model.safetensors").touch()
    calls = []

    def download(model, allow_patterns, **_):
        calls.append("*.bin" in allow_patterns)
        return str(tmp_path)

    install(monkeypatch, download)
    hub_names.fetched("hf:somebody/embedder")
    assert calls == [False, True][:expected]


def test_errors_of_the_library_are_one_line(monkeypatch):
    def download(*_, **__):
        raise OSError("no connection\nat all")

    install(monkeypatch, download)
    with pytest.raises(UserError, match=r"^hf:albert/tiny: .* \(no connection\)$"):
        hub_names.fetched("hf:albert/tiny")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match="pip install huggingface_hub"):
        hub_names.fetched("hf:albert/tiny")
