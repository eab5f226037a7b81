"""An example server for exports of `python -m albert_tf.export`, with TensorFlow Serving's REST API.

python tools/serve.py served/mrpc 8501
curl 127.0.0.1:8501/v1/models/mrpc:predict -d '{"instances": [{"text_a": "It rains.", "text_b": "It is wet."}]}'
"""

import argparse
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.serving import exports


def predict(model, request: dict) -> dict:
    """The answer to a request in rows ("instances") or columns ("inputs")."""
    function = model.signatures[request.get("signature_name", "serving_default")]
    specs = function.structured_input_signature[1]
    values = request["instances" if "instances" in request else "inputs"]
    if isinstance(values, list) and isinstance(values[0], dict):
        values = {name: [row[name] for row in values] for name in specs}
    columns = values if isinstance(values, dict) else {name: values for name in specs}
    tensors = function(**{name: tf.constant(columns[name], specs[name].dtype) for name in specs})
    outputs = {name: listed(tensor) for name, tensor in tensors.items()}
    if len(outputs) == 1:
        outputs = outputs.popitem()[1]
    elif "instances" in request:
        rows = zip(*outputs.values(), strict=True)
        outputs = [dict(zip(outputs, row, strict=True)) for row in rows]
    return {"predictions" if "instances" in request else "outputs": outputs}


def listed(tensor: tf.Tensor) -> list:
    """The values of a tensor as JSON values."""
    array = np.asarray(tensor.numpy())
    return (np.char.decode(array.astype(bytes)) if tensor.dtype == tf.string else array).tolist()


def make_server(folder: str, port: int) -> ThreadingHTTPServer:
    """A server of the newest version in a folder, whose name is the model's."""
    version = max(filter(str.isdigit, os.listdir(folder)), key=int)
    model = exports.load(os.path.join(folder, version))
    url = f"/v1/models/{os.path.basename(os.path.abspath(folder))}"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or a short answer waits 40 ms for an acknowledgement

        def do_GET(self):
            state = {"version": version, "state": "AVAILABLE", "status": {"error_code": "OK"}}
            self.answer(url, lambda _: {"model_version_status": [state]})

        def do_POST(self):
            self.answer(f"{url}:predict", lambda body: predict(model, json.loads(body)))

        def answer(self, expected_path: str, function):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                status, content = 200, function(body) if self.path == expected_path else None
            except Exception as error:  # a wrong request must not stop the server
                status, content = 400, {"error": f"{type(error).__name__}: {error}"}
            if content is None:
                status, content = 404, {"error": f"expected {expected_path}"}
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="folder of an export, with its numbered versions")
    parser.add_argument("port", type=int, help="port of this machine; 0 takes a free one")
    arguments = parser.parse_args()
    versions = os.listdir(arguments.folder) if os.path.isdir(arguments.folder) else []
    if not any(map(str.isdigit, versions)):
        parser.error(
            f"{arguments.folder}: expected the folder of an export, with a numbered version in it"
        )
    try:
        server = make_server(arguments.folder, arguments.port)
    except UserError as error:
        parser.exit(1, f"{error}\n")
    name = os.path.basename(os.path.abspath(arguments.folder))
    print(f"http://127.0.0.1:{server.server_port}/v1/models/{name}", flush=True)
    server.serve_forever()
