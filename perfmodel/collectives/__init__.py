"""Time of a collective, with band and evidence: measured, between two measurements, or by a law."""
