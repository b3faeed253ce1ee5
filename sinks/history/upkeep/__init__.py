"""Upkeep of the history's files: merging, roll-ups, retention, damage."""
