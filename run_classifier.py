"""Starts albert_tf/classify.py; --help explains it."""

from albert_tf.classify import run

if __name__ == "__main__":
    run()
