"""Starts albert_tf/data_prep/train_sentencepiece.py; --help explains it."""

import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).parents[1])  # the checkout, which need not be installed

if __name__ == "__main__":
    from albert_tf.data_prep.train_sentencepiece import run

    run()
