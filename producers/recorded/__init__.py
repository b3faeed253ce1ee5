"""Recorded telemetry: spazio's own history, or a foreign trace as Parquet or CSV."""
