"""Fine-tunes ALBERT on SQuAD 1.1 or 2.0, evaluates it by the official rules, and answers questions.

    python run_squad.py --version=2.0 --train_file=train-v2.0.json --eval_file=dev-v2.0.json \
        --init_checkpoint=albert_base --output_dir=runs/squad --preset=paper
    python run_squad.py --version=2.0 --do_train=false --do_eval=false --do_predict --predict_file=questions.json \
        --output_dir=runs/squad
"""

from albert_tf import cli, presets
from albert_tf.config import FineTuningOptimizerConfig, FineTuningRunConfig, SquadConfig


def main(
    run: FineTuningRunConfig, optimizer: FineTuningOptimizerConfig, squad: SquadConfig
) -> None:
    """Hands the task to the protocol."""
    # Here, so that a wrong flag is refused before TensorFlow is loaded.
    from albert_tf import protocol
    from albert_tf.tasks.squad import SquadTask

    protocol.fine_tune(SquadTask, squad, run, optimizer)


if __name__ == "__main__":
    cli.run(
        main,
        FineTuningRunConfig,
        FineTuningOptimizerConfig,
        SquadConfig,
        defaults=presets.for_squad,
    )
