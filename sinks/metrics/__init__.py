"""Prometheus metrics of the pipeline's estimates and predictions."""
