"""Writes the model of a finished run as it is published: weights in bfloat16, and a card with what was measured.

python -m lab.small_en.model --run_dir=WORK/last --output_dir=models/albert-small-en
"""

import dataclasses
import json
import pathlib
import struct

import ml_dtypes
import safetensors.numpy

from albert_tf import AlbertForPreTraining, load_pretrained, save_pretrained
from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.formats.hugging_face import WEIGHTS
from lab.small_en.report import CURVES


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """Which run, and where the model is written."""

    run_dir: str = setting("", "Folder of the finished run.", required=True, input_path=True)
    output_dir: str = setting("", "Folder of the model.", required=True)
    max_seq_length: int = setting(
        128, "Positions that are kept: those that were trained.", minimum=1
    )


def main(settings: ModelSettings) -> None:
    """Writes the model folder."""
    source = f"{settings.run_dir}/model"
    results = files.read_json(f"{settings.run_dir}/results.json")
    save_pretrained(
        without_positions(load_pretrained(source), settings.max_seq_length),
        settings.output_dir,
        spm_model_file=f"{source}/spiece.model",
        card=card(results, json.loads(CURVES.read_text())),
    )
    use_bfloat16(settings.output_dir)


def without_positions(model: AlbertForPreTraining, number: int) -> AlbertForPreTraining:
    """The model with embeddings of the first positions only."""
    config = dataclasses.replace(model.config, max_position_embeddings=number)
    shorter = AlbertForPreTraining(config)
    for name, variable in shorter.named_variables().items():
        variable.assign(model.named_variables()[name][tuple(map(slice, variable.shape))])
    return shorter


def card(results: dict, runs: list[dict]) -> dict[str, dict]:
    """The card, from the results of the last run and the curves of all."""
    tokens = sum(
        run["metrics"][-1]["step"] * run["batch"] * run["tokens_per_example"] for run in runs
    )
    hours = sum(run["metrics"][-1]["seconds"] for run in runs) / 3600
    majority = results["majority"]
    sections = {
        "header": {"license": "apache-2.0", "language": "en"},
        "Limits": {
            "text": "less than a thousandth of what the paper's base model read",
            "use": "completes common phrases; for most tasks, one of the released models is far better",
        },
        "Data": {
            "text": "168 MB of English Wikipedia (CC BY-SA) and books in the public domain",
            "masks": "15 % of the tokens, chosen anew each time, in spans of up to three words",
            "do lower case": True,
        },
        "Training": {
            "tokens": f"{tokens / 1e6:.0f} million, in rows of 128",
            "cost": f"{hours:.1f} hours of an AMD EPYC's processor time, in bfloat16, with LAMB",
            "curve, and what was tried": "docs/results/small_en.md",
        },
        "Results": {
            name: f"{value:.4f}"
            + (f" (majority class {majority[name]:.4f})" if name in majority else "")
            for name, value in results["eval"].items()
        },
    }
    return sections


def use_bfloat16(folder: str) -> None:
    """Rounds the weights of a model folder to bfloat16, which halves the file; readers widen them."""
    path = pathlib.Path(folder)
    tensors = safetensors.numpy.load((path / WEIGHTS).read_bytes())
    # The format by hand: the package's functions for NumPy know no bfloat16.
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, values in tensors.items():
        start = len(data)
        data += values.astype(ml_dtypes.bfloat16).tobytes()
        header[name] = {"dtype": "BF16", "shape": values.shape, "data_offsets": (start, len(data))}
    content = json.dumps(header).encode()
    content += b" " * (-len(content) % 8)
    files.write_bytes(str(path / WEIGHTS), struct.pack("<Q", len(content)) + content + data)


if __name__ == "__main__":
    flags.run(main, ModelSettings, description=__doc__)
