"""Fine-tunes a model on every small task with several seeds, and compares it with baselines; see `__main__.py`."""
