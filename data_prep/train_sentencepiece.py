"""Starts albert_tf/data_prep/train_sentencepiece.py; --help explains it."""

from albert_tf.data_prep.train_sentencepiece import run

if __name__ == "__main__":
    run()
