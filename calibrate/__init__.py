"""Measures hardware and imports measurements by others; independent of projections."""
