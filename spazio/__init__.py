"""The command line and the composition root: the only package that imports all others."""
