r"""Times a pretraining step of albert-base, compiled by XLA from its program, beside transformers' on a GPU.

    python -m lab.tools.accelerators.on_gpu lower FOLDER    # in the project's environment; no GPU is needed
    python lab/tools/accelerators/on_gpu.py jax FOLDER      # on the GPU, with jax[cuda]; no TensorFlow is needed
    python lab/tools/accelerators/on_gpu.py torch eager     # or compiled; with torch and transformers

64 examples of 512 tokens, bfloat16, no dropout. This project's step has LAMB and predicts 77 masks; that of
transformers has AdamW and computes the predictions of all tokens, as its class does.
"""

import json
import pathlib
import re
import sys
import time

BATCH, LENGTH, STEPS = 64, 512, 20
_LARGEST = {"input_ids": 30000, "masked_lm_ids": 30000, "masked_lm_positions": LENGTH}


def lower(folder: str) -> None:
    """Writes the step's program and the shapes of its features."""
    from lab.tools.accelerators import check

    settings = check.CheckSettings(batch=BATCH, length=LENGTH, num_layers=0, python=sys.executable)
    step = check.Step()
    program, text, _ = check.lower(settings, step, "GPU")
    print(check.broken_rules(text))
    pathlib.Path(folder).mkdir(exist_ok=True)
    pathlib.Path(folder, "step.hlo").write_bytes(program)
    names = list(check.feature_shapes(settings, step))
    pathlib.Path(folder, "features.json").write_text(json.dumps(names))


def _report(run, wait, **about) -> None:
    """Three times the mean of some steps, after three others."""
    for _ in range(3):
        run()
    wait()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(STEPS):
            run()
        wait()
        times.append((time.perf_counter() - start) / STEPS)
    speed = round(BATCH * LENGTH / sorted(times)[1])
    times = [round(1000 * one, 2) for one in times]
    print(json.dumps({"milliseconds": times, "tokens_per_second": speed, **about}))


def in_jax(folder: str) -> None:
    """Compiles the program and runs it with random positive variables; each step takes the last one's variables."""
    import jax
    import numpy as np
    from jax._src.interpreters import mlir
    from jaxlib import _jax, xla_client
    from jaxlib.mlir import ir

    jax.config.update("jax_enable_x64", True)
    program = _jax.mlir.hlo_to_stablehlo(pathlib.Path(folder, "step.hlo").read_bytes())
    with mlir.make_ir_context():
        module = ir.Module.parse(program)
        copies: list = []

        def visit(operation):
            copies.extend([operation.operation] * (operation.name == "mhlo.copy"))
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        for copy in copies:  # the compiler does not take them
            copy.results[0].replace_all_uses_with(copy.operands[0])
            copy.erase()
        aliases = str(module.operation.attributes["mhlo.input_output_alias"])
        pattern = r"parameter_number = (\d+) : i64}, output_index = array<i64: (\d+)>"
        new_value = {int(one): int(other) for one, other in re.findall(pattern, aliases)}
        main = next(one for one in module.body.operations if one.sym_name.value == "main")
        inputs = list(map(str, main.function_type.value.inputs))
        program = mlir.module_to_bytecode(module)
    options, device = xla_client.CompileOptions(), jax.devices()[0]
    ids = np.array([[device.id]], np.int32)
    options.device_assignment = xla_client.DeviceAssignment.create(ids)
    devices = xla_client.DeviceList((device,))
    compiled = device.client.compile_and_load(program, devices, options)
    names = json.loads(pathlib.Path(folder, "features.json").read_text())
    rng, arguments = np.random.default_rng(0), []
    for number, kind in enumerate(inputs):
        *shape, dtype = kind.removeprefix("tensor<").removesuffix(">").split("x")
        sizes = tuple(map(int, shape))
        name = names[number] if number < len(names) else ""
        if name in ("input_mask", "masked_lm_weights") or not name and dtype[0] != "f":
            value = np.ones(sizes)
        elif name:
            value = np.sort(rng.integers(0, _LARGEST.get(name, 2), sizes))
        else:
            value = np.abs(rng.normal(0, 0.02, sizes))
        dtype = {"f32": "float32", "i32": "int32", "i64": "int64", "i1": "bool"}[dtype]
        arguments.append(jax.device_put(value.astype(dtype), device))

    def run() -> None:
        results = compiled.execute_sharded(arguments).disassemble_into_single_device_arrays()
        for argument, result in new_value.items():
            arguments[argument] = results[result][0]

    versions = {"jax": jax.__version__, "device": device.device_kind}
    _report(run, lambda: jax.block_until_ready(arguments), **versions)
    assert all(np.isfinite(np.asarray(one)).all() for one in arguments)


def in_torch(mode: str) -> None:
    """The step of transformers, with its own attention kernels."""
    import torch
    import transformers

    sizes = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    rates = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    config = transformers.AlbertConfig(**sizes, **rates, attn_implementation="sdpa")
    model = transformers.AlbertForPreTraining(config).cuda().train()
    forward = torch.compile(model) if mode == "compiled" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, 30000, (BATCH, LENGTH), device="cuda")
    labels = torch.where(torch.rand(BATCH, LENGTH, device="cuda") < 0.15, ids, -100)
    order = torch.randint(0, 2, (BATCH,), device="cuda")

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = forward(input_ids=ids, labels=labels, sentence_order_label=order).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    _report(run, torch.cuda.synchronize, mode=mode, **versions)


if __name__ == "__main__":
    {"lower": lower, "jax": in_jax, "torch": in_torch}[sys.argv[1]](sys.argv[2])
