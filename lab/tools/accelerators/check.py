r"""Compiles steps for TPUs and GPUs that this machine does not have, and prints sizes that their compilers report.

    make accelerator-check
    make accelerator-check ACCELERATOR_FLAGS="--models=albert-base-v1 --chips=v6e --num_layers=0"

By default, the step has two layers and the compiler uses its least effort, which takes about a minute. Memory and
traffic of the whole model need `--num_layers=0 --least_effort=false`. Rules that a step breaks are printed, and the
exit status is then 1. A GPU needs another environment, of 5 GB:

    python -m venv .venv.gpu
    .venv.gpu/bin/python -m pip install --requirement lab/tools/accelerators/requirements-gpu.txt
    python -m lab.tools.accelerators.check --chips=h100 --python=.venv.gpu/bin/python
"""

import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from lab.tools.accelerators import hlo
from lab.tools.accelerators.compile import GPUS, TPU_TOPOLOGIES
from lab.tools.accelerators.lower import PRECISIONS, TASKS, StepSettings, lower

_TARGETS = {**dict.fromkeys(TPU_TOPOLOGIES, "TPU"), **dict.fromkeys(GPUS, "GPU")}  # by chip
# TensorFlow operations that return to the host in the middle of a step.
_HOST_OPERATIONS = ("PyFunc", "EagerPyFunc", "NumpyFunction", "PyFuncStateless", "Print", "PrintV2")
_HOST_INSTRUCTIONS = ("infeed(", "outfeed(", " send(", " recv(", "callback")
# Products of a type with at least this share of the operations are shown, and must be bfloat16.
_LARGE = 0.01
# The losses are added up separately, and the gradients together: the compiler combines tensors up to about 100 MB.
_MOST_SMALL_ALL_REDUCES = 2
_SMALL_BYTES = 50e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckSettings(Settings):
    """Which steps are compiled for which chips: all combinations of the items of lists, which commas separate."""

    models: str = setting("albert-base-v2", "Names of sizes; v1 has dropout, v2 has none.")
    chips: str = setting("v5e", f"Chips: {', '.join(_TARGETS)}.")
    tasks: str = setting("pretraining", f"Tasks: {', '.join(TASKS)}.")
    batches: str = setting("32", "Examples, or packed rows, of a device.")
    lengths: str = setting("512", "Tokens of an example or row.")
    rows: str = setting("single", "`single` examples, or `packed` rows of several.")
    recomputation: str = setting("false,true", "Whether the step has --recompute_activations.")
    replicas: str = setting("1", "Numbers of devices.")
    accumulation: int = setting(1, "Micro-batches of a device's batch.", minimum=1)
    precision: str = setting("mixed_bfloat16", "Precision of matrix products.", choices=PRECISIONS)
    num_layers: int = setting(2, "Number of layers; 0 takes that of the model.", minimum=0)
    least_effort: bool = setting(
        True, "Whether the compiler saves time; it then does not use on-chip memory."
    )
    python: str = setting(
        ".venv.accelerators/bin/python", "Python of the environment with jax.", input_path=True
    )
    output_file: str = setting(
        "",
        "File of results, one line of JSON each; results that it contains are not computed again.",
    )

    def steps(self) -> Iterator[StepSettings]:
        """The steps."""
        parts = (self.models, self.tasks, self.batches, self.lengths, self.rows)
        lists = (part.split(",") for part in (*parts, self.recomputation, self.replicas))
        for model, task, batch, length, rows, recompute, replicas in itertools.product(*lists):
            yield StepSettings(
                model=model,
                task=task,
                batch=int(batch),
                length=int(length),
                packed=rows == "packed",
                recompute=recompute == "true",
                replicas=int(replicas),
                accumulation=self.accumulation,
                precision=self.precision,
                num_layers=self.num_layers,
            )


class Compiler:
    """The process that runs the compiler."""

    def __init__(self, settings: CheckSettings):
        self._settings = settings
        self._process = subprocess.Popen(
            [settings.python, str(pathlib.Path(__file__).with_name("compile.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._known = {}
        if settings.output_file and os.path.exists(settings.output_file):
            lines = pathlib.Path(settings.output_file).read_text().splitlines()
            self._known = {_key(result): result for result in map(json.loads, lines)}

    def results(self, step: StepSettings, chips: list[str]) -> list[dict[str, Any]]:
        """The results of a step, compiled for each chip; see `_result`."""
        asked = {
            chip: {
                "step": dataclasses.asdict(step) | {"target": _TARGETS[chip]},
                "chip": chip,
                "least_effort": self._settings.least_effort,
            }
            for chip in chips
        }
        missing = [chip for chip in chips if _key(asked[chip]) not in self._known]
        for target in ("TPU", "GPU"):
            of_target = [chip for chip in missing if asked[chip]["step"]["target"] == target]
            if of_target:
                self._compile(dataclasses.replace(step, target=target), of_target, asked)
        return [self._known[_key(asked[chip])] for chip in chips]

    def _compile(self, step: StepSettings, chips: list[str], asked: Mapping[str, dict]) -> None:
        lowered, about = lower(step)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "step.hlo").write_bytes(lowered)
            pathlib.Path(folder, "step.json").write_text(json.dumps(about))
            for chip in chips:
                job = {"folder": folder, "chip": chip, "replicas": step.replicas}
                job |= {"least_effort": self._settings.least_effort}
                self._process.stdin.write(json.dumps(job) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
                if not line:
                    raise UserError(
                        f"--python={self._settings.python}: the compiler's process has ended"
                    )
                found = {**asked[chip], **static_facts(about), **json.loads(line)}
                self._known[_key(found)] = found
                if self._settings.output_file:
                    with open(self._settings.output_file, "a") as file:
                        file.write(json.dumps(found) + "\n")

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


def _key(result: Mapping[str, Any]) -> str:
    """The part of a result that says what was compiled."""
    return json.dumps([result["step"], result["chip"], result["least_effort"]], sort_keys=True)


def static_facts(about: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about the program that `lower` described, before it is compiled.

    Returns:
      `formula_flops`; `product_flops`, of all its products; `large_products`, the types of operands with the share of
      their products in the operations; and `broken`, the rules that it breaks.
    """
    module = hlo.Module(about["text"])
    products = module.products()
    total = sum(one.flops * one.times for one in products)
    shares: dict[str, float] = {}
    for one in products:
        types = " x ".join(one.types[:2])
        shares[types] = shares.get(types, 0.0) + one.flops * one.times / total
    shares = {types: share for types, share in shares.items() if share >= _LARGE}
    broken = []
    if "<=" in about["text"]:
        broken.append("a shape is not static")
    on_host = [name for name in _HOST_OPERATIONS if name in about["operations"]]
    on_host += [name.strip(" (") for name in _HOST_INSTRUCTIONS if name in about["text"]]
    if on_host:
        broken.append(f"the step returns to the host: {', '.join(on_host)}")
    if about["step"]["precision"] == "mixed_bfloat16" and shares.keys() - {"bf16 x bf16"}:
        broken.append(f"large products are {', '.join(sorted(shares))}")
    return {
        "formula_flops": about["flops"],
        "product_flops": total,
        "large_products": shares,
        "broken": broken,
    }


def broken_rules(results: list[Mapping[str, Any]]) -> list[str]:
    """The rules that compiled steps break, one line for each."""
    lines = []
    peaks = {}
    for result in results:
        step, name = result["step"], label(result)
        lines += [f"{name}: {rule}" for rule in result["broken"]]
        if "error" in result:
            if "needed_bytes" not in result:
                lines.append(f"{name}: does not compile: {result['error']}")
            continue
        reduces = [size for kind, size in result["collectives"] if kind.startswith("all-reduce")]
        small = sum(size < _SMALL_BYTES for size in reduces)
        if (
            step["replicas"] > 1
            and step["task"] != "evaluation"
            and not (reduces and small <= _MOST_SMALL_ALL_REDUCES)
        ):
            lines.append(
                f"{name}: {len(reduces)} all-reduces, {small} of them under {_SMALL_BYTES / 1e6:.0f} MB;"
                f" expected some, and at most {_MOST_SMALL_ALL_REDUCES} so small"
            )
        peaks[_key({**result, "step": {**step, "recompute": None}}), step["recompute"]] = result
    for (key, recompute), result in peaks.items():
        kept = peaks.get((key, False))
        if recompute and kept and result["peak_bytes"] >= kept["peak_bytes"]:
            lines.append(f"{label(result)}: recomputation does not lower the memory")
    return lines


def label(result: Mapping[str, Any]) -> str:
    """A short description of a step and its chip."""
    replicas, chip = result["step"]["replicas"], result["chip"]
    return f"{chip if replicas == 1 else f'{replicas} {chip}'}: {_words(result['step'])}"


def _words(step: Mapping[str, Any]) -> str:
    words = [step["model"], f"{step['batch']} x {step['length']}"]
    words += [step["task"]] * (step["task"] != "pretraining") + ["packed"] * step["packed"]
    words += ["recomputed"] * step["recompute"]
    words += [f"{step['accumulation']} micro-batches"] * (step["accumulation"] > 1)
    return ", ".join(words)


def programs(results: list[Mapping[str, Any]]) -> list[str]:
    """The table of compiled steps: a row for each step, and a column for each chip."""
    chips = [chip for chip in _TARGETS if any(result["chip"] == chip for result in results)]
    rows: dict[tuple, dict[str, str]] = {}
    for result in results:
        step = result["step"]
        ratio = result["product_flops"] / result["formula_flops"]
        head = (
            step["replicas"],
            str(step["num_layers"] or "all"),
            "least" if result["least_effort"] else "usual",
            _words(step),
            f"{result['product_flops'] / 1e12:.2f} ({ratio:.2f})",
            ", ".join(f"{kind} {share:.0%}" for kind, share in result["large_products"].items()),
            len(result.get("collectives", ())),
        )
        if "error" in result:
            cell = f"no: {result['error']}"
        else:
            # More is reserved than the peak if there are gaps between buffers.
            sizes = [result["peak_bytes"], result["argument_bytes"] + result["temporary_bytes"]]
            # With the least effort, values that could stay on the chip are counted as traffic.
            sizes += [result["traffic"]] * (not result["least_effort"])
            cell = " / ".join(f"{size / 1e9:.2f}" for size in sizes)
        rows.setdefault(head, {})[result["chip"]] = cell
    header = "devices | layers | effort | step | TFLOP (of formula) | large products | collectives"
    return table(
        " | ".join([header, *chips]),
        (
            [*head, *(cells.get(chip, "-") for chip in chips)]
            for head, cells in sorted(rows.items())
        ),
    )


def main(settings: CheckSettings) -> None:
    """Compiles, prints a table in GB (peak / reserved / traffic), and then the rules that are broken."""
    if unknown := set(settings.chips.split(",")) - _TARGETS.keys():
        settings.refuse("chips", f"names unknown chips: {', '.join(sorted(unknown))}")
    compiler = Compiler(settings)
    chips, results = settings.chips.split(","), []
    for step in settings.steps():
        results += compiler.results(step, chips)
    compiler.close()
    print("\n".join(programs(results)))
    if broken := broken_rules(results):
        print("\n".join(broken), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    flags.run(main, CheckSettings, description=__doc__)
