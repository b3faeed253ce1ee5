"""What brings the extender the state of the cluster: buckets and streams."""
