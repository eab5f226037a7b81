"""Engines: each calls a function for many items, in processes of this machine or on workers of a cluster."""
