"""Converts a model from one layout to another.

    albert-tf convert albert_base --output_dir=albert_base_hf
    albert-tf convert hf:albert/albert-base-v2 --output_dir=albert_base_tf1 --format=tf1

docs/reference/models.md lists the layouts.
"""

import dataclasses
import sys

from albert_tf import functions
from albert_tf.core import flags
from albert_tf.core.callable_modules import make_callable
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locks_output_dir
from albert_tf.core.program import Program
from albert_tf.core.settings import setting
from albert_tf.serving.settings import ModelSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertSettings(ModelSettings):
    """The model to read, and the layout to write."""

    output_dir: str = setting("", "Folder to write to; it must not contain a model.", required=True)
    format: str = setting(
        "hf",
        "hf: config.json, model.safetensors, vocabulary and tokenizer files; tf1: albert_config.json,"
        " model.ckpt-best.* and 30k-clean.model under the original's names; keras_hub: as hf, with a spiece.model that"
        " lower-cases text by itself.",
        choices=("hf", "keras_hub", "tf1"),
    )


@locks_output_dir
def main(settings: ConvertSettings) -> str:
    """Reads a model, reports on it and writes it; returns the folder."""
    from albert_tf.core import files
    from albert_tf.formats import pretrained  # TensorFlow
    from albert_tf.formats.model_tokenizer import tokenizer_of
    from albert_tf.formats.tokenizer_files import difference_in_transformers
    from albert_tf.serving.finished_model import recorded_settings

    settings.register_task()
    names = ("config.json", "albert_config.json")
    if any(files.exists(f"{settings.output_dir}/{name}") for name in names):
        raise UserError(f"--output_dir={settings.output_dir}: contains a model already")
    weights = pretrained.read_weights(settings.model, settings.num_hidden_layers)
    model, report = pretrained.build_model(weights)
    print(report.describe(weights.source))
    vocabulary = settings.vocabulary_file or weights.vocabulary
    tokenizer = tokenizer_of(weights, vocabulary) if vocabulary else None
    pretrained.save_pretrained(
        model,
        settings.output_dir,
        settings.format,
        tokenizer or "",
        **weights.cleaning,
        task=recorded_settings(weights),
        untrained=report.initialized,
        card={"Data": {"converted from": settings.model}},
    )
    if report.initialized:
        print(f"not written, as they have no trained values: {', '.join(report.initialized)}")
    if tokenizer and settings.format == "hf":
        difference = difference_in_transformers(tokenizer)
        if difference:
            print(f"warning: {difference}", file=sys.stderr)
    parameters = f"{model.count_params():,} parameters"
    has_vocabulary = "with vocabulary" if vocabulary else "without vocabulary"
    print(f"{type(model).__name__}, {parameters}, {has_vocabulary}, in {settings.output_dir}")
    return settings.output_dir


program = Program(
    main=main,
    settings_classes=(ConvertSettings,),
    description=__doc__,
    positional=("model",),
)
run = flags.in_shell(program)
make_callable(__name__, lambda: functions.function_of("convert"))

if __name__ == "__main__":
    run()
