"""The paper's tables and figures as runnable experiments: `python -m lab.experiments list` names them."""
