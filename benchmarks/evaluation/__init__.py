"""`python -m benchmarks.evaluation`: the dissertation's cluster and all packaged scenarios, simulated, on one page."""
