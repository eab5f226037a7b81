"""Downloads models by name: `hf:albert/albert-base-v2` -> a folder in the cache of the huggingface_hub library.

The library's own settings apply: HF_HUB_OFFLINE, HF_HOME, HF_ENDPOINT, HF_TOKEN. Without a network, its cache is used.
Only the files that this project reads are downloaded, all from one commit.
"""

import fnmatch
import hashlib
import os
import re
from collections.abc import Collection

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.core.files import HUB_PREFIX
from albert_tf.formats import hugging_face, sentence_transformers, tokenizer_files

_NAME = re.compile(HUB_PREFIX + r"(?P<model>[\w.-]+(/[\w.-]+)?)(@(?P<revision>[\w./-]+))?")
_SECONDS = 10  # to wait for an answer before the cache is used


def fetched(name: str) -> str:
    """The folder of a model, downloaded if it is not in the cache.

    Args:
      name: "hf:organization/model" or "hf:organization/model@revision" (a branch, tag or commit; "main" by default).
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise UserError(f"{name}: expected hf:organization/model or hf:organization/model@revision")
    try:
        from huggingface_hub import errors  # an optional dependency
    except ImportError:
        hint = "models by name need huggingface_hub; pip install huggingface_hub"
        raise UserError(f"{name}: {hint}") from None
    model, revision = match["model"], match["revision"] or "main"
    try:
        folder = _folder(name, model, revision)
        _verify(name, folder)
        return folder
    except errors.GatedRepoError:
        reason = "its owner gives it on request only; ask on the model's page, then hf auth login"
    except errors.RepositoryNotFoundError:
        reason = "no such model, or a private one; check the name, or hf auth login"
    except errors.RevisionNotFoundError:
        reason = f"the model has no revision {revision}"
    except errors.HFValidationError as error:
        reason = first_line(error)
    raise UserError(f"{name}: {reason}")


def _folder(name: str, model: str, revision: str) -> str:
    """Asks the hub for the model's files and downloads those that are needed; if it does not answer, uses the cache."""
    from huggingface_hub import HfApi, constants, errors, snapshot_download, try_to_load_from_cache

    try:
        listing = HfApi().model_info(model, revision=revision, timeout=_SECONDS)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError):
        raise
    except Exception as error:  # no answer; the exception differs between versions
        path = try_to_load_from_cache(model, hugging_face.CONFIG, revision=revision)
        if isinstance(path, str) and hugging_face.is_model(os.path.dirname(path)):
            return os.path.dirname(path)
        raise UserError(
            f"{name}: not in the cache {constants.HF_HUB_CACHE}, and the hub does not answer ({first_line(error)});"
            " connect, or give the folder of a model"
        ) from None
    wanted = _files_to_read({file.rfilename for file in listing.siblings})
    if not wanted:
        expected = f"{hugging_face.CONFIG} and one of {', '.join(hugging_face.WEIGHT_FILES)}"
        raise UserError(f"{name}: no model that can be read here: expected {expected} in it")
    try:
        return snapshot_download(model, revision=revision, allow_patterns=wanted)
    except errors.RepositoryNotFoundError:
        raise
    except Exception as error:  # the connection broke, the disk is full, ...
        raise UserError(f"{name}: the download failed ({first_line(error)})") from None


def _verify(name: str, folder: str) -> None:
    """Compares files with the hashes that the hub gave when they were downloaded, which are their names in the cache.

    It is the SHA-256 of a large file, and SHA-1 as in git of a small one. A cache without links has no hashes.
    """
    names = os.listdir(folder)
    patterns = _files_to_read(names)
    for file in sorted(one for one in names if any(fnmatch.fnmatch(one, p) for p in patterns)):
        path = os.path.realpath(os.path.join(folder, file))
        expected = os.path.basename(path)
        found = expected
        if re.fullmatch("[0-9a-f]{64}", expected):
            found = files.sha256(path)
        elif re.fullmatch("[0-9a-f]{40}", expected):
            content = files.read_bytes(path)
            found = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        if found != expected:
            reason = f"{file} is not the file of the hub, as its hash differs"
            raise UserError(f"{name}: {reason}; delete {path} to download it again")


def _files_to_read(names: Collection[str]) -> list[str]:
    """Patterns for the files of a model that are read, with weights in one format; empty if it has no weights."""
    weights = [name for name in hugging_face.WEIGHT_FILES if name in names]
    if hugging_face.CONFIG not in names or not weights:
        return []
    stem, ending = weights[0].split(".")[:2]
    shards = [f"{stem}-*.{ending}"] if weights[0].endswith(hugging_face.INDEX) else []
    optional = (*hugging_face.VOCABULARIES, tokenizer_files.SETTINGS, *sentence_transformers.FILES)
    return [hugging_face.CONFIG, weights[0], *shards, *optional]
