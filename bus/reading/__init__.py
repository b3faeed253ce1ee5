"""Reading streams: a reader without holes, leases, and when to stop collecting."""
