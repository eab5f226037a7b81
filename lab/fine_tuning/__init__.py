"""Fine-tunes the same weights on the same data in transformers (PyTorch) and in this library; see `__main__.py`."""
