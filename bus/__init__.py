"""The only code that knows NATS: connect, publish, consume, buckets, checkpoints, the embedded server."""
