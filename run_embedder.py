"""Starts `albert-tf embed`; --help explains it."""

from albert_tf.command import start

if __name__ == "__main__":
    start("embed")
