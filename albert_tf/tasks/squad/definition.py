r"""Fine-tunes ALBERT on SQuAD 1.1 or 2.0, evaluates it, and answers questions.

    albert-tf squad --version=2.0 --train_file=train-v2.0.json --eval_file=dev-v2.0.json \
        --init_checkpoint=albert_base --output_dir=runs/squad --preset=paper
    albert-tf squad --version=2.0 --do_train=false --do_eval=false --do_predict \
        --predict_file=questions.json --output_dir=runs/squad

The evaluation follows the official rules.
"""

from albert_tf.core import files
from albert_tf.tasks.definition import TaskDefinition, imported
from albert_tf.tasks.presets import row
from albert_tf.tasks.squad.predictor import SpanOrNonePredictor, SpanPredictor
from albert_tf.tasks.squad.questions import version_of
from albert_tf.tasks.squad.settings import SquadConfig
from albert_tf.tasks.squad.source import SquadSource

_V1 = row(5e-5, 48, 0.0, 3649, 365, 384)


def _of_data(values, given_names):
    """The version of the files, if no flag says it."""
    if "version" in given_names:
        return {}
    versions = []
    for name in ("train_file", "eval_file"):
        path = values[name]
        if path and files.is_here(path):
            versions.append(version_of(path, f"--{name}={path}"))
    return {"version": max(versions)} if versions else {}


DEFINITION = TaskDefinition(
    names=("squad1.1", "squad2.0"),
    name_of=lambda values: f"squad{values['version']}",
    settings=SquadConfig,
    source=SquadSource,
    task=imported("albert_tf.tasks.squad.task", "make_task"),
    predictors={"AlbertForSpan": SpanPredictor, "AlbertForSpanOrNone": SpanOrNonePredictor},
    of_data=_of_data,
    presets={
        "paper": {"squad1.1": _V1, "squad2.0": row(3e-5, 48, 0.0, 8144, 814, 512)},
        "readme": {
            "squad1.1": _V1,
            "squad2.0": row(
                5e-5, 48, 0.0, None, None, 384, num_train_epochs=2.0, warmup_proportion=0.1
            ),
        },
    },
)

if __name__ == "__main__":
    raise SystemExit("this module only defines the task; run albert-tf squad")
