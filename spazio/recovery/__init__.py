"""What a service reads back at its start of what an earlier run published."""
