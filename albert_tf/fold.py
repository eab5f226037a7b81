r"""Folds a trained BERT or ALBERT into a smaller ALBERT, from which distillation starts.

    albert-tf fold all-MiniLM-L6-v2 --output_dir=folded --embedding_size=128 --num_hidden_groups=3
    albert-tf distill --teacher=all-MiniLM-L6-v2 --init_checkpoint=folded --input_file=text.txt --output_dir=run

docs/guides/fold.md explains the steps.
"""

from albert_tf.core import flags
from albert_tf.core.callable_modules import make_callable
from albert_tf.core.program import Program
from albert_tf.fold_to_folder import FoldSettings, main
from albert_tf.folded_model import fold

program = Program(
    main=main,
    settings_classes=(FoldSettings,),
    description=__doc__,
    positional=("model",),
)
run = flags.in_shell(program)
make_callable(__name__, lambda: fold)

if __name__ == "__main__":
    run()
