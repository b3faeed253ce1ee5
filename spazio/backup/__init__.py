"""Backup and restore of a folder: streams, buckets, checkpoints, history and credentials, while everything runs."""
