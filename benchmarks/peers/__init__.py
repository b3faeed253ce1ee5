"""spazio beside its peers: `python -m benchmarks.peers`."""
