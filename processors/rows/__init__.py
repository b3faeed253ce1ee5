"""State of many nodes as rows of arrays: tables, names as row numbers, and bytes for checkpoints."""
