"""Start of the program in albert_tf/experiments/: `python -m experiments` in a checkout; and its results."""
