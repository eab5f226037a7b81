"""Starts albert_tf/data_prep/sample_task.py; --help explains it."""

from albert_tf.data_prep.sample_task import run

if __name__ == "__main__":
    run()
