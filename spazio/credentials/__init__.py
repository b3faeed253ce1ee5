"""Credentials of the bus: an operator, its accounts, and a user for each role and node, as NATS JWTs."""
