"""Layouts in which models come and go: one file each, and all of them give the same thing, `weights.Weights`."""
