"""The tasks, each in a package of its own, and the modules that they share."""
