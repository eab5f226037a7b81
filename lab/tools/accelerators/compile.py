"""Compiles a lowered step for a TPU that this machine does not have; needs an environment with jax and libtpu only.

    python lab/tools/accelerators/compile.py FOLDER CHIP REPLICAS

FOLDER has `step.hlo` and the number of features in `features.txt`; the sizes are printed as a line of JSON.
"""

import json
import os
import pathlib
import sys

TOPOLOGIES = {"v3": "2x2", "v4": "2x2x1", "v5e": "2x2", "v5p": "2x2x1", "v6e": "2x2"}
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def with_aliases(module: bytes, num_features: int) -> bytes:
    """A StableHLO module, changed so that a variable's new value replaces the old one, as in TensorFlow.

    The features are the first arguments; the others are variables.
    """
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    def is_main(operation) -> bool:
        return ir.StringAttr(operation.attributes["sym_name"]).value == "main"

    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        (main,) = filter(is_main, parsed.body.operations)
        signature = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        inputs = list(map(str, signature.inputs))
        results = list(map(str, signature.results))
        # New values of variables are the last results, in the order of the arguments.
        result = len(results) - 1
        attributes = [{} for _ in inputs]
        for argument in reversed(range(num_features, len(inputs))):
            if result >= 0 and inputs[argument] == results[result]:
                index = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), result)
                attributes[argument] = {"tf.aliasing_output": index}
                result -= 1
        attributes_of_arguments = [ir.DictAttr.get(entries) for entries in attributes]
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes_of_arguments)
        return mlir.module_to_bytecode(parsed)


def compiled(folder: pathlib.Path, chip: str, replicas: int) -> dict:
    """The memory of a compiled step in bytes, and its all-reduces; or the compiler's `error`."""
    import numpy as np
    from jax.experimental import topologies
    from jaxlib import _jax, xla_client

    module = _jax.mlir.hlo_to_stablehlo((folder / "step.hlo").read_bytes())
    module = with_aliases(module, int((folder / "features.txt").read_text()))
    name = f"{chip}:{TOPOLOGIES[chip]}"
    topology = topologies.get_topology_desc(platform="tpu", topology_name=name)
    devices = tuple(topology.devices[:replicas])
    options = xla_client.CompileOptions()
    options.num_replicas = replicas
    ids = np.array([[device.id] for device in devices], np.int32)
    options.device_assignment = xla_client.DeviceAssignment.create(ids)
    # The least effort: on-chip memory is not used.
    options.executable_build_options.exec_time_optimization_effort = -1.0
    try:
        program = devices[0].client.compile(module, xla_client.DeviceList(devices), options)
    except Exception as error:  # the runtime has its own classes of errors
        return {"error": str(error).strip()[:500]}
    text = program.hlo_modules()[0].to_string()
    memory = program.get_compiled_memory_stats()
    all_reduces = text.count(" all-reduce(") + text.count(" all-reduce-start(")
    return {"peak_bytes": memory.peak_memory_in_bytes, "all_reduces": all_reduces}


if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)
    print(json.dumps(compiled(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
