"""How a search divides its effort: shares of it, and how much counted work at least or at most."""

QUICK, STARTING = 0.3, 0.6  # of the work, at most: for quick plans, for all plans to begin with
STARTING_S, STARTING_LEAST = 1.5, 0.3  # and of more effort: so many seconds, and so much of that share
EVENING = 0.25  # of that work more, until when they are made even
DESCENDING = 0.5  # of the work, until when plans are begun from
GLANCE = 0.1  # of the work: whether the first plans of few tables are the best already
EARLY, EARLY_LEAST = 0.3, 0.1  # until when many tables are changed at random before the bound, and how long
BOUNDING, BOUNDING_LEAST = 0.4, 0.08  # the same of the bound, before plans are changed at random
CHANGING, CHANGING_LEAST = 0.85, 0.2  # until when, and how long: the rest is for the bound
NEAR = 0.2  # of the work since bounds were begun, at most, for plans near their optima
REASONS = 0.1  # of the work, beside it: for the next best of the tables
