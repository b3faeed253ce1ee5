"""Who a connection is, what it may do, and what the server refuses it."""
