"""Views that answer questions of operators, over the tables of the history."""
