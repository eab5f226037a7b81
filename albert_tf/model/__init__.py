"""Token ids -> hidden states -> outputs; reads no files and trains nothing."""
