"""Groups of pods by priority, and what lower tiers may get: Mid and Batch resources below the predicted peak."""
