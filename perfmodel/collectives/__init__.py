"""Time of a collective, with band and evidence: from a measured cell, from two cells around it, or from
the law."""
