"""Reading streams: a reader without gaps, leases, and how long to collect messages."""
