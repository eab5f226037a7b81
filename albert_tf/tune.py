r"""Finds the fastest form of a model for your texts on this machine, and exports it.

    albert-tf tune runs/embedder --input_file=texts.txt --output_dir=fast
    albert-tf predict fast < texts.txt

The table has texts per second of processor time, without that for tokens, of all forms whose engines are installed;
the size of the files; and the cosine with the outputs in float32. The export is the fastest of those whose median
cosine is at least --min_cosine, and `predict`, `search` and `serve` compute it as it was measured.
docs/guides/speed.md explains the forms.
"""

import dataclasses
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from albert_tf import functions
from albert_tf.core import files, flags
from albert_tf.core.aligned_columns import aligned
from albert_tf.core.callable_modules import make_callable
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locked
from albert_tf.core.program import Program
from albert_tf.core.settings import changed, setting
from albert_tf.formats.model_tokenizer import tokenizer_of
from albert_tf.predict import PredictSettings, examples_of_rows, parse, read_rows
from albert_tf.serving.engines import obstacle_of
from albert_tf.serving.exports.form import BLOCK_SIZE, Order, write_files
from albert_tf.serving.exports.onnx import ONNX
from albert_tf.serving.onnx_model import TOKENS_OF_BATCH
from albert_tf.serving.settings import ModelUseSettings
from albert_tf.user_files import table_files

if TYPE_CHECKING:
    from albert_tf.tasks.predictor import Predictor

_MOST_TEXTS = 2048


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneSettings(ModelUseSettings):
    """The model, the texts, and what is exact enough."""

    input_file: str = setting(
        "",
        "Texts like those that the model will answer, some hundreds: lines as `albert-tf predict` reads them, or a"
        " table.",
        required=True,
        input_path=True,
    )
    text_columns: str = changed(PredictSettings, "text_columns", "")
    output_dir: str = setting("", "Folder for the ONNX export.", required=True)
    overwrite: bool = setting(False, "Whether an existing export is replaced.")
    min_cosine: float = setting(
        0.998,
        "Least median cosine of the outputs with those in float32; 0 takes the fastest form, 1 that in float32.",
        minimum=0.0,
        maximum=1.0,
    )
    seconds: float = setting(
        50.0,
        "Time for measuring, in seconds; what has begun then is ended.",
        minimum=1.0,
        maximum=3600.0,
    )


def main(settings: TuneSettings) -> str:
    """Prints the table and writes the export; returns the path of its file."""
    from albert_tf.serving.finished_model import task_settings_of
    from albert_tf.serving.predictors import load_predictor
    from albert_tf.serving.tuning import REFERENCE, Tuning, describe

    settings.register_task()
    path = os.path.join(settings.output_dir, ONNX.file)
    if files.exists(path) and not settings.overwrite:
        raise UserError(f"{path}: is there already; give another --output_dir, or --overwrite")
    if settings.text_columns and not table_files.is_table(settings.input_file):
        settings.refuse("text_columns", "needs a table as --input_file")
    with locked(settings.output_dir):
        weights = settings.read_weights()
        if obstacle := obstacle_of(weights):
            raise UserError(f"{settings.model}: {obstacle}")
        predictor = load_predictor(
            settings.model,
            spm_model_file=settings.vocabulary_file,
            do_lower_case=settings.do_lower_case,
            max_seq_length=settings.max_seq_length,
            num_hidden_layers=settings.num_hidden_layers,
            engine=REFERENCE.engine.name,
        )
        tuning = Tuning(weights, predictor, _examples(predictor, settings), settings.seconds)
        tuning.run(settings.min_cosine)
        best = tuning.best(settings.min_cosine)
        tokens = tuning.tokens_of_batch(best)
        print(aligned(describe(tuning, best)), end="")
        for title, reason in tuning.failed.items():
            print(f"  {title}: {reason}", file=sys.stderr)
        order = Order(
            path=path,
            weights=weights,
            task=task_settings_of(weights, settings.max_seq_length),
            tokenizer=tokenizer_of(weights) if weights.vocabulary else None,
            quantization=best.form.quantization,
            block_size=BLOCK_SIZE,
            dtype="float32",
            name=os.path.basename(os.path.abspath(settings.model)),
            web_engine="",
        )
        engine = {**best.form.engine.describe(), TOKENS_OF_BATCH: tokens}
        write_files(order, best.contents, engine=engine)
    return path


def _examples(predictor: "Predictor", settings: TuneSettings) -> list[Any]:
    """Examples of the file, at most `_MOST_TEXTS`, from all parts of it."""
    path = settings.input_file
    source = f"--input_file={path}"
    if table_files.is_table(path):
        frame = predictor.unnested(read_rows(path, settings.text_columns), source)
        examples = examples_of_rows(predictor, frame, path, settings.text_columns)
    else:
        lines = table_files.read_lines(path, source)
        numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
        examples = [_example_of(predictor, line, f"{source}: line {n}") for n, line in numbered]
    if not examples:
        raise UserError(f"{source}: contains no texts")
    step = math.ceil(len(examples) / _MOST_TEXTS)
    return examples[::step]


def _example_of(predictor: "Predictor", line: str, place: str) -> Any:
    try:
        return predictor.check(parse(line, predictor.line_format))
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


program = Program(
    main=main,
    settings_classes=(TuneSettings,),
    description=__doc__,
    positional=("model",),
)
run = flags.in_shell(program)
make_callable(__name__, lambda: functions.function_of("tune"))

if __name__ == "__main__":
    run()
