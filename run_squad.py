"""Fine-tunes ALBERT on SQuAD 1.1 or 2.0, evaluates it by the official rules, and answers questions.

    python run_squad.py --version=2.0 --train_file=train-v2.0.json --eval_file=dev-v2.0.json \
        --init_checkpoint=albert_base --output_dir=runs/squad --preset=paper
    python run_squad.py --version=2.0 --do_train=false --do_eval=false --do_predict --predict_file=questions.json \
        --output_dir=runs/squad
"""

from albert_tf.core import flags
from albert_tf.tasks import presets
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig
from albert_tf.tasks.squad.settings import SquadConfig


def main(
    run: FineTuningRunConfig, optimizer: FineTuningOptimizerConfig, squad: SquadConfig
) -> None:
    """Hands the task to the protocol."""
    # Here, so that a wrong flag is refused before TensorFlow is loaded.
    from albert_tf.tasks import repeated_runs
    from albert_tf.tasks.squad.task import SquadTask

    repeated_runs.fine_tune(SquadTask, squad, run, optimizer)


if __name__ == "__main__":
    flags.run(
        main,
        FineTuningRunConfig,
        FineTuningOptimizerConfig,
        SquadConfig,
        defaults=presets.for_squad,
    )
