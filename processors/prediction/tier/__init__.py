"""What may be lent to lower tiers: Mid and Batch resources below the predicted peak."""
