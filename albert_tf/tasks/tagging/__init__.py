"""Tagging: a label for every word of a text, such as named entities."""
