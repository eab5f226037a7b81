"""Compiles lowered steps for TPUs and GPUs that this machine does not have; needs an environment with jax only.

    echo '{"folder": "lowered", "chip": "v5e"}' | python lab/tools/accelerators/compile.py

Each line of standard input is a dictionary with the arguments of `compiled`; its result is printed as a line of JSON.
"""

import contextlib
import json
import os
import pathlib
import re
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))

from lab.tools.accelerators import hlo  # noqa: E402

_SHAPES = {"v3": "2x2", "v4": "2x2x1", "v5e": "2x2", "v5p": "2x2x1", "v6e": "2x2"}
TPU_TOPOLOGIES = {chip: f"{chip}:{shape}" for chip, shape in _SHAPES.items()}
GPUS = ("h100",)
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
GPU_FLAGS = "--xla_gpu_autotune_level=0 --xla_dump_hlo_as_text"


def devices_of(chip: str, replicas: int) -> list:
    """Descriptions of devices of a kind of chip; none of them needs to exist here."""
    from jax.experimental import topologies

    if chip in GPUS:
        description = pathlib.Path(__file__).with_name(f"{chip}.textproto").read_text()
        topology = topologies.get_topology_desc(
            "name", "cuda", target_config=description, topology=f"1x1x{replicas}"
        )
    else:
        topology = topologies.get_topology_desc(platform="tpu", topology_name=TPU_TOPOLOGIES[chip])
    return topology.devices[:replicas]


def with_aliases(module: bytes, num_features: int) -> bytes:
    """A StableHLO module, changed so that a variable's new value replaces the old one, as in TensorFlow.

    Args:
      module: the module.
      num_features: number of features; they are the first arguments, and are not variables.
    """
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        (main,) = (
            one
            for one in parsed.body.operations
            if ir.StringAttr(one.attributes["sym_name"]).value == "main"
        )
        signature = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        inputs, results = (
            [str(one) for one in part] for part in (signature.inputs, signature.results)
        )
        # New values of variables are the last results, in the order of the arguments.
        result, attributes = len(results) - 1, [{} for _ in inputs]
        for argument in reversed(range(num_features, len(inputs))):
            if result >= 0 and inputs[argument] == results[result]:
                index = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), result)
                attributes[argument] = {"tf.aliasing_output": index}
                result -= 1
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get(one) for one in attributes]
        )
        return mlir.module_to_bytecode(parsed)


def compiled(
    folder: str,
    chip: str,
    *,
    replicas: int = 1,
    least_effort: bool = False,
    dumps: str = "",
) -> dict:
    """The sizes of a compiled step, in bytes and operations; or the compiler's `error`.

    Args:
      folder: a folder with `step.hlo` and `step.json` (`check.py`).
      chip: one of `TPU_TOPOLOGIES` or `GPUS`.
      replicas: number of devices for which the step was lowered.
      least_effort: whether the compiler saves time; it then does not use on-chip memory.
      dumps: folder to which the compiler writes its modules; needed for a GPU.
    """
    import numpy as np
    from jaxlib import _jax, xla_client

    about = json.loads(pathlib.Path(folder, "step.json").read_text())
    module = _jax.mlir.hlo_to_stablehlo(pathlib.Path(folder, "step.hlo").read_bytes())
    module = with_aliases(module, len(about["features"]))
    devices = devices_of(chip, replicas)
    options = xla_client.CompileOptions()
    options.num_replicas = replicas
    ids = np.array([[one.id] for one in devices], np.int32)
    options.device_assignment = xla_client.DeviceAssignment.create(ids)
    if least_effort:
        options.executable_build_options.exec_time_optimization_effort = -1.0
    started = time.monotonic()
    try:
        program = devices[0].client.compile(module, xla_client.DeviceList(tuple(devices)), options)
    except Exception as error:  # the runtime has its own classes of errors
        message = str(error)
        if match := re.search(r"Used ([\d.]+)([GM]) of ([\d.]+)G hbm", message):
            used = float(match[1]) * {"G": 2**30, "M": 2**20}[match[2]]
            return {"error": match[0], "needed_bytes": used, "limit_bytes": float(match[3]) * 2**30}
        return {"error": message.strip()[:500]}
    seconds = time.monotonic() - started
    memory = program.get_compiled_memory_stats()
    arguments, temporary = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    text = _last_dump(dumps) if chip in GPUS else program.hlo_modules()[0].to_string()
    parsed = hlo.Module(text)
    return {
        "seconds": round(seconds, 1),
        "peak_bytes": arguments + temporary if chip in GPUS else memory.peak_memory_in_bytes,
        "temporary_bytes": temporary,
        "argument_bytes": arguments,
        "traffic": parsed.traffic(),
        "collectives": sorted(
            (one.opcode, sum(array.bytes for array in one.results)) for one in parsed.collectives()
        ),
    }


def _last_dump(folder: str) -> str:
    """The program that was compiled last for a GPU, from the dumps, because the compiler does not return it."""
    files = pathlib.Path(folder).glob("*gpu_after_optimizations.txt")
    return max(files, key=lambda file: file.stat().st_mtime).read_text()


def main() -> None:
    """Answers each line of standard input."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(ENVIRONMENT)
        for line in sys.stdin:
            job = json.loads(line)
            os.environ["JAX_PLATFORMS"] = "" if job["chip"] in GPUS else "cpu"
            if job["chip"] in GPUS:
                os.environ["XLA_FLAGS"] = f"{GPU_FLAGS} --xla_dump_to={folder}"
            with contextlib.redirect_stdout(sys.stderr):  # jax prints messages about CUDA
                result = compiled(**job, dumps=folder)
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
