"""Starts albert_tf/data_prep/glue_submission.py; --help explains it."""

from albert_tf.data_prep.glue_submission import run

if __name__ == "__main__":
    run()
