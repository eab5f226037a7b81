"""Starts albert_tf/experiments/__main__.py; --help explains it."""

from albert_tf.experiments.__main__ import run

if __name__ == "__main__":
    run()
