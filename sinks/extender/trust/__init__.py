"""What the extender promises, whether it holds, what it is worth, and who is placed by it."""
