"""Starts of the programs in albert_tf/data_prep/: `python -m data_prep.<program>` in a checkout."""
