"""Starts albert_tf/race.py; --help explains it."""

from albert_tf.race import run

if __name__ == "__main__":
    run()
