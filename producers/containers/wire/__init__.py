"""Protocols of container daemons: HTTP over a Unix socket, gRPC, Protocol Buffers."""
