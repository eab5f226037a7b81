"""Starts albert_tf/data_prep/sample_corpus.py; --help explains it."""

from albert_tf.data_prep.sample_corpus import run

if __name__ == "__main__":
    run()
