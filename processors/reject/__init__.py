"""PRONTO's reject signal: whether a node's usage departs from its own pattern, so that no job should be sent there."""
