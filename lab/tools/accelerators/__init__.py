"""Compiles steps for TPUs and GPUs that this machine does not have; reports memory, operations and traffic."""
