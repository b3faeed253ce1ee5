"""How well predictions held: those that wait for their future, running accuracy, and what is learned from both."""
