"""Measures a plan: rounds, stop rule, journal, stack; and a simulated team that tests all of it."""
