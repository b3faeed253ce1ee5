"""What a partition's nodes will need: peaks, reject signals and sums by workload, out of the same telemetry."""
