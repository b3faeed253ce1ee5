"""From one second of a node to how many more pods fit: the chain of estimates and its steps."""
