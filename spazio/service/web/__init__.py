"""HTTP beside the pages themselves: HTTPS and passwords in the format of Prometheus' web configuration, and OTLP."""
