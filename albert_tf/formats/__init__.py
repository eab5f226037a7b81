"""Reads and writes models in every layout: one module per layout, and all of them use `weights.Weights`."""
