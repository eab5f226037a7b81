"""What must stay equal when the code changes: values that the programs of a checkout compute from fixed data."""
