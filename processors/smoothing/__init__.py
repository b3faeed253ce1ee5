"""Smoothing of samples: one filter a file."""
