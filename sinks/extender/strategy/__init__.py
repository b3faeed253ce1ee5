"""Strategies: how nodes are ranked for a pod, one a file."""
