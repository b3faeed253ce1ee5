"""Backup and restore of a data folder: streams, buckets, checkpoints, history and credentials, while all runs."""
