"""The small English model: its text, and the commands that pretrain it."""
