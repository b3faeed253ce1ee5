"""Container sources: one a file, behind one protocol."""
