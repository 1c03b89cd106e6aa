"""Measures hardware and reads what others measured; knows nothing of projections."""
