"""Measures sentence embeddings of a model, untrained and trained, beside other methods; see `__main__.py`."""
