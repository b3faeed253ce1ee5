"""What the extender knows of nodes, pods and reservations."""
