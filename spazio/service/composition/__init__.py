"""What runs on one machine, and sinks that need more than a connection: the Kubernetes API, the history, or a note."""
