"""Container sources: one per file, behind one protocol."""
