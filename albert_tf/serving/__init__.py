"""Models inside TensorFlow graphs that take strings: what `albert_tf/export.py` writes."""
