"""State that a service reads at its start from what an earlier run published."""
