"""Container events: one source per file behind one protocol, merged into one account of what runs."""
