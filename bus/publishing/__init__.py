"""Writing to streams: atomic batches, pipelines, the producer's outbox, dead letters."""
