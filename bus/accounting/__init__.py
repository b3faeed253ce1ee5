"""Accounts of what was read from streams and what became of it, and how other programs ask for them."""
