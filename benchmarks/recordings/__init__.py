"""Public recordings of usage, converted for the back-test."""
