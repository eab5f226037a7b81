"""Token ids -> hidden states -> outputs. The package reads no files and trains nothing."""
