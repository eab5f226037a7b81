"""Uploads a model folder to Hugging Face, with license and language in the model card.

    albert-tf push runs/reviews hf:my-organization/reviews --license=apache-2.0 --language=en

Give your token once with `hf auth login`. The files are uploaded as one commit.
"""

import dataclasses
import os
import re

from albert_tf.core import checksums, files, flags
from albert_tf.core.errors import UserError, first_line
from albert_tf.core.settings import Settings, setting
from albert_tf.formats import model_card

_NAME = re.compile(r"hf:(?P<name>[\w.-]+/[\w.-]+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PushSettings(Settings):
    """The model to upload, and its name."""

    model: str = setting(
        "", "Model folder, or the folder of a finished run.", required=True, input_path=True
    )
    name: str = setting(
        "", "hf:organization/model; created if it does not exist yet.", required=True
    )
    license: str = setting("", "License for the model card, such as apache-2.0.")
    language: str = setting("", "Language for the model card, such as en; commas separate several.")
    private: bool = setting(False, "Whether a new model can be seen only by its owners.")
    message: str = setting("Upload model", "Message of the commit.")

    def __post_init__(self):
        super().__post_init__()
        if not _NAME.fullmatch(self.name):
            self.refuse("name", f"must be hf:organization/model, got {self.name!r}")


def main(settings: PushSettings) -> None:
    """Uploads the files of the folder as one commit."""
    try:
        from huggingface_hub import CommitOperationAdd, HfApi  # an optional dependency
    except ImportError:
        reason = "needs huggingface_hub: pip install huggingface_hub"
        raise UserError(f"--name={settings.name}: {reason}") from None
    contents = contents_of(settings)
    name = settings.name.removeprefix("hf:")
    operations = [
        CommitOperationAdd(path_in_repo=path, path_or_fileobj=content)
        for path, content in contents.items()
    ]
    try:
        HfApi().create_repo(name, private=settings.private, exist_ok=True)
        commit = HfApi().create_commit(name, operations, commit_message=settings.message)
    except (
        Exception
    ) as error:  # no token, no connection, ...; the exceptions differ between versions
        reason = f"{first_line(error)}; hf auth login gives your token"
        raise UserError(f"{settings.name}: cannot be uploaded ({reason})") from None
    print(f"{len(contents)} files of {settings.model} in {commit.commit_url}")


def contents_of(settings: PushSettings) -> dict[str, str | bytes]:
    """Paths in the upload, and the local path or the content of each file."""
    inner = os.path.join(settings.model, "model")
    folder = inner if files.is_folder(inner) else settings.model
    if not files.exists(os.path.join(folder, "model.safetensors")):
        raise UserError(
            f"--model={settings.model}: has no model.safetensors; albert-tf convert writes a folder with it"
        )
    checksums.verify(folder)
    paths = {os.path.relpath(path, folder): path for path in sorted(files.files_below(folder))}
    # The changed card would contradict the checksums, and the hub has its own.
    contents: dict[str, str | bytes] = {
        path: paths[path] for path in paths if path != checksums.SUMS_FILE
    }
    card = files.read_bytes(paths[model_card.FILE]).decode() if model_card.FILE in paths else ""
    languages = ", ".join(filter(None, map(str.strip, settings.language.split(","))))
    header = {"license": settings.license, "language": languages and f"[{languages}]"}
    contents[model_card.FILE] = with_header(card, header).encode()
    return contents


def with_header(card: str, entries: dict[str, str]) -> str:
    """A model card with more entries in its header; an empty value keeps the card's own."""
    match = re.match(r"---\n(.*?)^---\n", card, re.DOTALL | re.MULTILINE)
    lines, rest = (match[1].splitlines(), card[match.end() :]) if match else ([], card)
    for name, value in entries.items():
        if value:
            lines = [line for line in lines if not line.startswith(f"{name}:")]
            lines.append(f"{name}: {value}")
    return "\n".join(["---", *lines, "---", rest])


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    flags.run(main, PushSettings, description=__doc__, positional=("model", "name"))


if __name__ == "__main__":
    run()
