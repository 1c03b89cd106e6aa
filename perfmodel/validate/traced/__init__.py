"""A traced run against the prediction for its plan: matched steps, times, and reasons for differences."""
