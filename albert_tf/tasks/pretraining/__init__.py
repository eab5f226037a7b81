"""Pretraining: masked language model with sentence order (SOP), next sentence (NSP) or neither."""
