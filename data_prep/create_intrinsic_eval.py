"""Starts albert_tf/data_prep/create_intrinsic_eval.py; --help explains it."""

from albert_tf.data_prep.create_intrinsic_eval import run

if __name__ == "__main__":
    run()
