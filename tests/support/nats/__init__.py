"""A NATS server with JetStream as an object: what spazio relies on, in this process, and killed at will.

It speaks the protocol of the real server to the real client over a pipe in memory, so that whatever runs over a
nats-server runs over this one unchanged. It answers what it imitates as nats-server 2.15 does, and refuses loudly what
it does not imitate. One suite of tests holds both to the same behaviour.
"""
