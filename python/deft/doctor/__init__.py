"""`deft doctor train.py`: any PyTorch script as it is: why it lags, which lines, and what a cure is worth.

Plain Python, importable without Deft's extension: what watches a script runs under the user's own Python and torch."""
