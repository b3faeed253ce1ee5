"""Peak models: one a file, each a member of `protocol.PeakModel`."""
