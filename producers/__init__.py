"""One source per file: measure and publish, compute nothing else."""
