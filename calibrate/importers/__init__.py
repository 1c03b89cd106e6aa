"""Readers of the logs that people already have."""
