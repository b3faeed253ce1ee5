"""Folding streams exactly once: tasks shared by replicas, journals and checkpoints."""
