"""Text files of the benchmarks -> features: tables of piece ids and labels; no TensorFlow, no model.

`glue`, `squad` and `race` read their files and make features; `table` holds them; `prepare` makes them in parallel and
caches them.
"""
