"""Measures a plan: rounds, stop rule, journal, stack."""
