"""How well predictions held: those that wait for their future, and running accuracy."""
