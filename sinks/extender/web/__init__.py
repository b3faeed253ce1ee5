"""The HTTP side of the extender: connections, TLS, and kube-scheduler's messages."""
