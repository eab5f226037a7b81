"""SQuAD 1.1 and 2.0: the answer to a question is a span of its context."""
