"""The route /v1/embeddings, with the requests and answers of OpenAI's API, which other servers have, too."""

import base64
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened

PATH = "/v1/embeddings"
# Outputs of the signature `embed`, of which a model has one.
_VECTORS = ("embedding", "mean_embedding")


def answer(
    content: bytes,
    signatures: Collection[str],
    outputs: Callable[[str, dict[str, np.ndarray]], Mapping[str, np.ndarray]],
    *,
    model: str,
    most_texts: int,
) -> dict[str, Any]:
    """The answer to a request, {"input": text or list of texts, "encoding_format": "float" or "base64"}.

    Args:
      outputs: runs a signature of the model on arrays with a batch dimension.
      model: the name of the model in the answer.

    Raises:
      UserError: the request has another form, or the model has no vectors of texts.
    """
    request = files.parse_json(content, "request")
    texts = request.get("input")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError(f'"input" must be a text or a list of texts; got {shortened(texts)}')
    if not 0 < len(texts) <= most_texts:
        raise UserError(f'"input" must have 1 to {most_texts} texts; got {len(texts)}')
    encoding = request.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise UserError(f'"encoding_format" must be float or base64; got {shortened(encoding)}')
    if "embed" not in signatures:
        raise UserError("this model has no signature embed: it has no vectors of texts")
    found = outputs("embed", {"texts": np.array([text.encode() for text in texts], object)})
    vectors = next(found[name] for name in _VECTORS if name in found)
    rows = vectors.tolist()
    if encoding == "base64":  # what the client of OpenAI asks for
        rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
    data = [
        {"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)
    ]
    return {"object": "list", "data": data, "model": model}
