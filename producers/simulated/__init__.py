"""Nodes that exist in arithmetic only, which publish what real agents and a real cluster watch would."""
