"""The contract of spazio: messages, metrics, subjects, codec and settings. No I/O and no NATS."""
