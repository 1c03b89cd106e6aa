"""Measures hardware, and imports measurements made by other tools; does not depend on projections."""
