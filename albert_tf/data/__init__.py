"""Examples on disk -> batches."""
