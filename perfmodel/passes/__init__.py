"""The steps of a pass, which projections and plans share: what each is, what it is computed with, and why."""
