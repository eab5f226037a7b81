"""Distillation: a smaller encoder learns the hidden states of a trained one from plain text."""
