"""One package per task, and what all of them share."""
