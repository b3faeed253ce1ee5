"""Strategies that rank nodes for a pod, one per file."""
