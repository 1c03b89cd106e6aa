"""A lower bound on the time of all plans."""
