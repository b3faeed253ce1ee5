"""Code that all service processes share, and the composition of each service."""
