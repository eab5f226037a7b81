"""The formats of pretraining records."""
