"""One package for each task, and the modules that they share."""
