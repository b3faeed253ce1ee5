"""Decayed histograms of usage, and their exchange with other systems."""
