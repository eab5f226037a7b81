"""Models by name: from a cache that was made by hand, from a small hub on this machine, and from nowhere."""

import fnmatch
import hashlib
import http.server
import json
import os
import shutil
import threading

import pytest

from albert_tf import UserError, load_pretrained
from albert_tf.core import flags
from albert_tf.formats import hub_names
from albert_tf.training.settings import RunConfig
from tests.helpers import ROOT, run_script

RECORDED_MODEL = ROOT / "tests" / "recorded_outputs" / "pretraining"
COMMIT = "0123456789abcdef0123456789abcdef01234567"

# In a process of its own: huggingface_hub reads its settings when it is imported.
FETCH = """
import json, sys, time
from albert_tf.core.errors import UserError
from albert_tf.formats import hub_names
for name in sys.argv[1:]:
    start = time.time()
    try:
        found = hub_names.fetched(name)
    except UserError as error:
        found = f"UserError: {error}"
    print(json.dumps([found, time.time() - start]))
"""


def fetched(*names: str, **environment: str) -> list[str]:
    pytest.importorskip("huggingface_hub")
    process = run_script("-c", FETCH, *names, HF_HUB_DISABLE_TELEMETRY="1", **environment)
    assert process.returncode == 0, process.stderr
    rows = [json.loads(line) for line in process.stdout.splitlines()]
    assert len(rows) == len(names)
    assert all(seconds < 10 for _, seconds in rows), rows
    assert all("\n" not in found for found, _ in rows)
    return [found for found, _ in rows]


@pytest.fixture
def cache(tmp_path):
    """A cache with albert/tiny, in the layout that huggingface_hub documents."""
    model = tmp_path / "cache" / "models--albert--tiny"
    shutil.copytree(RECORDED_MODEL, model / "snapshots" / COMMIT)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    return tmp_path / "cache"


@pytest.mark.parametrize("offline", ["0", "1"])
def test_the_cache_is_used_without_a_network(cache, offline):
    # Nothing listens on port 9 of this machine.
    places = {"HF_HUB_CACHE": str(cache), "HF_ENDPOINT": "http://127.0.0.1:9"}
    names = ("hf:albert/tiny", f"hf:albert/tiny@{COMMIT}", "hf:albert/tiny@other", "hf:albert/no")
    by_name, by_commit, other, no = fetched(*names, **places, HF_HUB_OFFLINE=offline)
    assert by_name == by_commit == str(cache / "models--albert--tiny" / "snapshots" / COMMIT)
    load_pretrained(by_name)
    for message, name in ((other, names[2]), (no, names[3])):
        assert message.startswith(f"UserError: {name}: not in the cache {cache}, and the hub does")
        assert ("offline mode" in message) == (offline == "1")


class Hub(http.server.BaseHTTPRequestHandler):
    """The few addresses of the hub that are asked: a model's list of files, and files."""

    files = ("README.md", "config.json", "model.safetensors", "pytorch_model.bin", "spiece.model")
    errors = {"secret": (401, "RepoNotFound"), "gated": (403, "GatedRepo"), "broken": (500, "I")}

    def do_GET(self):  # noqa: N802 (the name is http.server's)
        name = next((name for name in self.errors if f"/{name}/" in f"{self.path}/"), "")
        if name and not (name == "gated" and "/api/" in self.path):
            status, code = self.errors[name]
            self.answer(b"", status, {"X-Error-Code": code})
        elif "no-such-revision" in self.path:
            self.answer(b"", 404, {"X-Error-Code": "RevisionNotFound"})
        elif self.path.startswith("/api/models/"):
            names = ["README.md"] if "/empty/" in f"{self.path}/" else self.files
            if "/tree/" in self.path:  # asked by huggingface_hub 1 and newer
                paths = {name: RECORDED_MODEL / name for name in names}
                sizes = {n: p.stat().st_size if p.exists() else 5 for n, p in paths.items()}
                tree = [{"type": "file", "path": n, "oid": n, "size": sizes[n]} for n in names]
                return self.answer(json.dumps(tree).encode(), 200, {})
            siblings = [{"rfilename": file} for file in names]
            listing = {"id": "albert/tiny", "sha": COMMIT, "siblings": siblings}
            self.answer(json.dumps(listing).encode(), 200, {"Content-Type": "application/json"})
        else:
            file = self.path.rsplit("/", 1)[1]
            path = RECORDED_MODEL / file
            content = path.read_bytes() if path.exists() else b"other"
            etag = hashlib.sha256(content).hexdigest()  # of a large file
            if file == "config.json":
                etag = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            if "/damaged/" in self.path and file == "model.safetensors":
                content = content[:-1] + b"!"
            self.answer(content, 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    do_HEAD = do_GET  # noqa: N815

    def answer(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_what_is_needed_is_downloaded(tmp_path, hub):
    places = {"HF_HUB_CACHE": str(tmp_path), "HF_ENDPOINT": hub, "HF_HUB_OFFLINE": "0"}
    names = ("tiny", "tiny@no-such-revision", "secret", "gated", "empty", "broken")
    names += ("damaged",)
    messages = fetched(*(f"hf:albert/{name}" for name in names), **places)
    folder = tmp_path / "models--albert--tiny" / "snapshots" / COMMIT
    assert messages[0] == str(folder)
    # No second copy of the weights, and nothing that is not read.
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors", "spiece.model"]
    load_pretrained(str(folder))
    expected = (
        "the model has no revision no-such-revision",
        "no such model, or a private one",
        "its owner gives it on request only",
        "no model that can be read here: expected config.json and one of model.safetensors",
        "not in the cache",
        "model.safetensors is not the file of the hub, as its hash differs; delete ",
    )
    for message, part in zip(messages[1:], expected, strict=True):
        assert part in message

    # What was fetched is found again without the hub.
    places |= {"HF_HUB_OFFLINE": "1"}
    assert fetched("hf:albert/tiny", **places) == [str(folder)]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (["model.safetensors", "pytorch_model.bin", "model-1.safetensors"], [0]),
        (["model.safetensors.index.json", "model-1.safetensors", "tf_model.h5"], [0, 1]),
        (["pytorch_model.bin.index.json", "pytorch_model-1.bin", "model-1.safetensors"], [0, 1]),
    ],
)
def test_the_weights_of_one_format_are_downloaded(weights, expected):
    names = [*weights, "config.json", "README.md"]
    patterns = hub_names._files_to_read(names)
    wanted = {name for name in names if any(fnmatch.fnmatch(name, part) for part in patterns)}
    assert wanted == {"config.json", *(weights[index] for index in expected)}


@pytest.mark.parametrize("name", ["hf:", "hf:a/b/c", "hf:a/b@", "hf:a b", "hf:../x/y"])
def test_wrong_names_of_the_hub_are_rejected(name):
    with pytest.raises(UserError, match="expected hf:organization/model"):
        hub_names.fetched(name)


def test_without_huggingface_hub(tmp_path):
    (tmp_path / "huggingface_hub.py").write_text("raise ImportError\n")
    process = run_script("-c", FETCH, "hf:albert/tiny", PYTHONPATH=str(tmp_path))
    assert "need huggingface_hub; pip install huggingface_hub" in process.stdout, process.stderr


def test_flags_take_names():
    flags.check_paths(RunConfig(output_dir="out", init_checkpoint="hf:albert/albert-base-v2"))
    with pytest.raises(UserError, match="no such file"):
        flags.check_paths(RunConfig(output_dir="out", init_checkpoint="albert/albert-base-v2"))
