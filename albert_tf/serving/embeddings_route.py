"""The route /v1/embeddings, with the requests and answers of OpenAI's API, which other servers have, too."""

import base64
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError, shortened

PATH = "/v1/embeddings"
# Outputs of the signature `embed`, of which a model has one.
_VECTORS = ("embedding", "mean_embedding")


def request_of(request: Mapping[str, Any], signatures: Collection[str]) -> dict[str, Any]:
    """The same request for /v1/models/NAME:predict.

    `request` is {"input": text or list of texts, "encoding_format": "float" or "base64"}.

    Raises:
      UserError: the request has another form, or the model has no vectors of texts.
    """
    texts = request.get("input")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError(f'"input" must be a text or a list of texts; got {shortened(texts)}')
    encoding = request.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise UserError(f'"encoding_format" must be float or base64; got {shortened(encoding)}')
    if "embed" not in signatures:
        raise UserError("this model has no signature embed: it has no vectors of texts")
    return {"signature_name": "embed", "inputs": texts}


def answer(
    outputs: Mapping[str, np.ndarray], request: Mapping[str, Any], model: str
) -> dict[str, Any]:
    """The answer to a request, from the outputs of the signature; `model` is the name of the model in it."""
    vectors = next(outputs[name] for name in _VECTORS if name in outputs)
    rows = vectors.tolist()
    if request.get("encoding_format") == "base64":  # what the client of OpenAI asks for
        rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
    data = [
        {"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)
    ]
    return {"object": "list", "data": data, "model": model}
