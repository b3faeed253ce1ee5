"""What the dashboard reads from the bus for its pages."""
