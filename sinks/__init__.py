"""One sink per file or folder: write and serve; sinks do not know each other."""
