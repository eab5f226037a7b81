"""The open inference protocol (KServe, Triton, OpenVINO Model Server): /v2/models/NAME/infer, and state for probes."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError, shortened

PREFIX = "/v2/"
_TYPES = {"bool": "BOOL", "int32": "INT32", "int64": "INT64", "float32": "FP32", "float64": "FP64"}


def state(path: str, model: str, version: str) -> dict[str, Any] | None:
    """The answer to a GET request; None if there is no such path."""
    about = {"name": model, "versions": [version], "platform": "albert_tf"}
    answers: dict[str, dict[str, Any]] = {
        "/v2": {"name": "albert_tf", "extensions": []},
        "/v2/health/live": {"live": True},
        "/v2/health/ready": {"ready": True},
        f"/v2/models/{model}": about,
        f"/v2/models/{model}/ready": {"name": model, "ready": True},
    }
    return answers.get(path)


def request_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """The same request for /v1/models/NAME:predict; the parameter `signature_name` selects a signature."""
    tensors = request.get("inputs")
    if not isinstance(tensors, list) or not all(
        isinstance(tensor, dict)
        and {"name", "shape", "data"} <= tensor.keys()
        and isinstance(tensor["name"], str)
        for tensor in tensors
    ):
        raise UserError(
            f'"inputs" must be a list of tensors with name, shape and data; got {shortened(tensors)}'
        )
    parameters = request.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise UserError(f'"parameters" must be an object; got {shortened(parameters)}')
    selected = {key: parameters[key] for key in ("signature_name",) if key in parameters}
    return {"inputs": {tensor["name"]: _nested(tensor) for tensor in tensors}, **selected}


def _nested(tensor: Mapping[str, Any]) -> Any:
    """The data of a tensor as lists of its shape."""
    shape, data = tensor["shape"], tensor["data"]
    is_shape = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if not is_shape or not isinstance(data, list):
        raise UserError(f"{shortened(tensor['name'])}: expected a list of sizes and a list of data")
    if any(isinstance(value, list) for value in data):  # nested already
        return data
    if len(data) != math.prod(shape):
        raise UserError(
            f"{shortened(tensor['name'])}: shape {shape} has other values than {len(data)}"
        )
    for size in reversed(shape[1:]):
        data = [data[start : start + size] for start in range(0, len(data), size)] if size else []
    return data


def answer(
    outputs: Mapping[str, np.ndarray],
    request: Mapping[str, Any],
    listed: Callable[[np.ndarray], Any],
    model: str,
    version: str,
) -> dict[str, Any]:
    """The outputs that a request asks for, by default all, in the form of the protocol, with flat data."""
    names = _names_of_outputs(request) or list(outputs)
    if unknown := [name for name in names if name not in outputs]:
        known = ", ".join(outputs)
        raise UserError(f"no output {shortened(unknown[0])}; expected some of {known}")
    tensors = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": _TYPES.get(array.dtype.name, "BYTES"),
            "data": listed(array.ravel()),
        }
        for name, array in ((name, outputs[name]) for name in names)
    ]
    of_request = {"id": request["id"]} if "id" in request else {}
    return {"model_name": model, "model_version": version, **of_request, "outputs": tensors}


def _names_of_outputs(request: Mapping[str, Any]) -> list[str]:
    wanted = request.get("outputs") or []
    if not isinstance(wanted, list) or not all(
        isinstance(output, dict) and isinstance(output.get("name"), str) for output in wanted
    ):
        raise UserError(f'"outputs" must be a list of objects with a name; got {shortened(wanted)}')
    return [output["name"] for output in wanted]
