"""Writes to the API server: which changes are worth one, in what order, and how fast."""
