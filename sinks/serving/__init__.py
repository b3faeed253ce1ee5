"""What all HTTP servers of sinks share: bounds for clients, and certificates that are renewed while they run."""
