"""Models by name: `hf:albert/albert-base-v2` -> a folder in the cache of the huggingface_hub library.

The library's own settings hold: HF_HUB_OFFLINE, HF_HOME, HF_ENDPOINT, HF_TOKEN. Without a network, what is in its cache
is used. Only the files that are read here are fetched, all of one commit.
"""

import os
import re
from collections.abc import Collection

from albert_tf.core.errors import UserError, first_line
from albert_tf.core.files import HUB_PREFIX
from albert_tf.formats import hugging_face, tokenizer_files

_NAME = re.compile(HUB_PREFIX + r"(?P<model>[\w.-]+(/[\w.-]+)?)(@(?P<revision>[\w./-]+))?")
_SECONDS = 10  # to wait for an answer before the cache is used
_OPTIONAL = (hugging_face.VOCABULARY, tokenizer_files.SETTINGS)


def fetched(name: str) -> str:
    """The folder of a model, fetched if the cache does not have it.

    Args:
      name: "hf:organisation/model" or "hf:organisation/model@revision", a branch, a tag or a commit; "main" if none.

    Raises:
      UserError: the name is malformed, huggingface_hub is not installed, there is no such model or revision, it wants a
        permission, it holds no ALBERT weights, or it is not in the cache and there is no network.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise UserError(f"{name}: expected hf:organisation/model or hf:organisation/model@revision")
    try:
        from huggingface_hub import errors  # an extra
    except ImportError:
        raise UserError(
            f"{name}: models by name need huggingface_hub; pip install albert-tf[hub]"
        ) from None
    model, revision = match["model"], match["revision"] or "main"
    try:
        return _folder(model, revision)
    except errors.GatedRepoError:
        reason = "its owner gives it on request only; ask on the model's page, then hf auth login"
    except errors.RepositoryNotFoundError:
        reason = "no such model, or a private one; check the name, or hf auth login"
    except errors.RevisionNotFoundError:
        reason = f"the model has no revision {revision}"
    except errors.HFValidationError as error:
        reason = first_line(error)
    except _NotFetchedError as error:
        reason = str(error)
    raise UserError(f"{name}: {reason}")


class _NotFetchedError(Exception):
    """Why there is no folder."""


def _folder(model: str, revision: str) -> str:
    """Asks once what the model consists of; without an answer takes the cache, so that no download is tried in vain."""
    from huggingface_hub import HfApi, constants, errors, try_to_load_from_cache

    try:
        listing = HfApi().model_info(model, revision=revision, timeout=_SECONDS)
    except (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.HFValidationError,
    ):
        raise
    except Exception as error:  # no answer: its class differs from version to version
        path = try_to_load_from_cache(model, hugging_face.CONFIG, revision=revision)
        if isinstance(path, str) and hugging_face.is_model(os.path.dirname(path)):
            return os.path.dirname(path)
        raise _NotFetchedError(
            f"not in the cache {constants.HF_HUB_CACHE}, and the hub does not answer ({first_line(error)});"
            " connect, or give the folder of a model"
        ) from None
    try:
        return _download(model, revision, {file.rfilename for file in listing.siblings})
    except (errors.RepositoryNotFoundError, _NotFetchedError):
        raise
    except Exception as error:  # the connection broke, the disk is full, ...
        raise _NotFetchedError(f"the download failed ({first_line(error)})") from None


def _download(model: str, revision: str, names: Collection[str]) -> str:
    from huggingface_hub import hf_hub_download

    weights = [name for name in hugging_face.WEIGHT_FILES if name in names]
    if hugging_face.CONFIG not in names or not weights:
        expected = f"{hugging_face.CONFIG} and one of {', '.join(hugging_face.WEIGHT_FILES)}"
        raise _NotFetchedError(f"no model that can be read here: expected {expected} in it")
    # By the revision's name, which enters the cache so; what it stands for today is the name of the folder.
    folder = os.path.dirname(hf_hub_download(model, hugging_face.CONFIG, revision=revision))
    commit = os.path.basename(folder)
    for name in (weights[0], *(name for name in _OPTIONAL if name in names)):
        hf_hub_download(model, name, revision=commit)
    for name in hugging_face.shard_names(folder):
        hf_hub_download(model, name, revision=commit)
    return folder
