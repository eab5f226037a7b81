"""GLUE and your own tables of texts: one label or score per text or pair of texts."""
