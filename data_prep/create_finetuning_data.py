"""Starts albert_tf/data_prep/create_finetuning_data.py; --help explains it."""

from albert_tf.data_prep.create_finetuning_data import run

if __name__ == "__main__":
    run()
