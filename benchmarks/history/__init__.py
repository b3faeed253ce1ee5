"""A day of history as the sink writes it: bytes a row, and how long questions take."""
