"""RACE: the answer to a question is one of four options."""
