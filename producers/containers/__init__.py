"""Container events: sources behind one protocol, merged into one sequence of events."""
