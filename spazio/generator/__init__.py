"""Load generators and replays: nodes that exist only for the pipeline, and the pace of a recording."""
