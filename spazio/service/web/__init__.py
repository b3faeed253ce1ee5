"""HTTPS and passwords of /metrics, in the format of Prometheus' web configuration."""
