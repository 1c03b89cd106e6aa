"""A traced run beside what its plan was predicted to take: steps matched, times, and why they differ."""
