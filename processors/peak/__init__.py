"""Predict how high usage will rise: decayed histograms, peak predictors, and what may be reclaimed below the peak."""
