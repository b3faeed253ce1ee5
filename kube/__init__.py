"""The only code that knows the Kubernetes API: its connection, list and watch, and what its objects say."""
