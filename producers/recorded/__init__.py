"""Telemetry that was recorded before: our own history, or a trace from elsewhere as Parquet or CSV."""
