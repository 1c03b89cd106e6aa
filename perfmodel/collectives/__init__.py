"""How long a collective takes: a measured cell, between cells, or the law, with band and evidence."""
