"""Starts albert_tf/tag.py; --help explains it."""

from albert_tf.tag import run

if __name__ == "__main__":
    run()
