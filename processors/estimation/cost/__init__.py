"""What one more pod costs: least squares by default, and the Kalman forms of the reference variant."""
