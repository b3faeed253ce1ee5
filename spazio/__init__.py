"""The command line and the composition root: the only place that knows all the other packages."""
