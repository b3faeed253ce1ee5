"""Limits of pods of the lower tiers on one node: what follows from measurements, without clock or I/O."""
