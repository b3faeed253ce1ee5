"""Measurements that back the claims of the README; each compares side by side in one run."""
