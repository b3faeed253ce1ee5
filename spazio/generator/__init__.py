"""Load generators: nodes that exist for the pipeline only."""
