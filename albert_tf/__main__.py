"""Makes `python -m albert_tf PROGRAM` the same as `albert-tf PROGRAM`."""

from albert_tf.command import main

if __name__ == "__main__":
    main()
