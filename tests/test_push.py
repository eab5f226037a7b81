"""`albert-tf push` uploads the files of a model, with its license and language in the card, as one commit."""

import shutil
import sys
import types

import pytest

from albert_tf import UserError, push
from tests.helpers import ROOT


class Hub(types.ModuleType):
    """A huggingface_hub whose server is this object."""

    def __init__(self, error: str = ""):
        super().__init__("huggingface_hub")
        self.HfApi, self.CommitOperationAdd = lambda: self, dict
        self.error, self.created, self.commits = error, [], []

    def create_repo(self, repo_id, *, private, exist_ok):
        if self.error:
            raise OSError(self.error)
        self.created.append((repo_id, private, exist_ok))

    def create_commit(self, repo_id, operations, *, commit_message):
        contents = {one["path_in_repo"]: one["path_or_fileobj"] for one in operations}
        self.commits.append((repo_id, contents, commit_message))
        return types.SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(ROOT / "models" / "albert-tiny-docs", tmp_path / "run" / "model")


def pushed(monkeypatch, folder, hub, **settings):
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    push.main(push.PushSettings(model=str(folder), name="hf:me/tiny", **settings))


def test_the_files_of_a_run_are_one_commit(folder, monkeypatch, capsys):
    hub = Hub()
    pushed(monkeypatch, folder.parent, hub, license="mit", language="en, de", private=True)
    ((name, contents, message),) = hub.commits
    assert hub.created == [("me/tiny", True, True)] and (name, message) == (
        "me/tiny",
        "Upload model",
    )
    card = contents.pop("README.md").decode()
    old = (folder / "README.md").read_text()
    expected = old.replace("license: apache-2.0\nlanguage: en\n", "")
    expected = expected.replace(
        "tags: [albert]\n", "tags: [albert]\nlicense: mit\nlanguage: [en, de]\n", 1
    )
    assert card == expected != old
    files = {path.name: str(path) for path in folder.iterdir()}
    assert contents == {
        name: files[name] for name in files if name not in ("README.md", "SHA256SUMS")
    }
    assert "6 files" in capsys.readouterr().out


def test_without_flags_the_card_is_not_changed_and_a_missing_one_is_made(folder, monkeypatch):
    card = (folder / "README.md").read_text()
    assert push.with_header(card, {"license": "", "language": ""}) == card
    assert push.with_header("", {"license": "mit"}) == "---\nlicense: mit\n---\n"


def test_what_cannot_be_uploaded_is_an_error_of_one_line(folder, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="hf:me/tiny: cannot be uploaded .no token; hf auth login"):
        pushed(monkeypatch, folder, Hub("no token"))
    with pytest.raises(UserError, match="has no model.safetensors; albert-tf convert writes"):
        pushed(monkeypatch, tmp_path, Hub())
    with pytest.raises(UserError, match="--name must be hf:organization/model, got 'me/tiny'"):
        push.PushSettings(model=str(folder), name="me/tiny")
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"config.json: .*changed"):
        pushed(monkeypatch, folder, Hub())
    with pytest.raises(UserError, match="needs huggingface_hub: pip install huggingface_hub"):
        pushed(monkeypatch, folder, None)
