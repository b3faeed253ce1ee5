"""Peak models: one a file."""
