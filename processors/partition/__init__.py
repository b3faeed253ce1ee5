"""One partition of nodes: messages in stream order in, messages out."""
