"""Starts albert_tf/data_prep/split_sentences.py; --help explains it."""

from albert_tf.data_prep.split_sentences import run

if __name__ == "__main__":
    run()
