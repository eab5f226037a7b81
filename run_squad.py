"""Starts albert_tf/squad.py; --help explains it."""

from albert_tf.squad import run

if __name__ == "__main__":
    run()
