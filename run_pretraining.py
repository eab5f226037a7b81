"""Starts albert_tf/pretrain.py; --help explains it."""

from albert_tf.pretrain import run

if __name__ == "__main__":
    run()
