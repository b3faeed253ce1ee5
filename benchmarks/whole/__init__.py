"""Everything on, as a user starts it: cost of each service, and how old availability is."""
