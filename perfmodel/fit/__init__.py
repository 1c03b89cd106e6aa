"""Samples to curves and fabric constants."""
