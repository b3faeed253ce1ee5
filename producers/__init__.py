"""One source per file: measure, publish, compute nothing else."""
