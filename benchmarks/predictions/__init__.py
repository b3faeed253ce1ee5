"""What predictions cost beside the fold."""
