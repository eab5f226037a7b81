"""The paper's tables and figures as runnable experiments: `python -m experiments list` names them."""
