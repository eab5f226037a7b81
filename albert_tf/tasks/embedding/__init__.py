"""Sentence embeddings: one vector for each text, close for texts of the same meaning; search and similarity."""
