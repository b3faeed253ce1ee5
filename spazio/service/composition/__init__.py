"""Sinks that need more than a connection: the Kubernetes API, the history, or a note with their address."""
