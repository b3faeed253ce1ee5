"""What each pod of the node uses, read from its control groups."""
