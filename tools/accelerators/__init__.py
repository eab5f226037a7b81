"""Compiles the device steps for TPUs and GPUs that are not there, and reports memory, operations and traffic."""
