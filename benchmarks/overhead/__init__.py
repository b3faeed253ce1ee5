"""`python -m benchmarks.overhead`: by how much the agent delays jobs that compute."""
