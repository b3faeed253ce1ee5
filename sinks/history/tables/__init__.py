"""The tables of the history: how messages become rows, one group of tables a file."""
