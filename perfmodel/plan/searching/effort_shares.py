"""How a search divides its effort among its phases: shares of the total, with limits of counted work."""

QUICK, STARTING = 0.3, 0.6  # of the work, at most: for quick plans, for all starting plans
STARTING_S, STARTING_LEAST = 1.5, 0.3  # with more effort: so many seconds, at least this part of the share
EVENING = 0.25  # of that work in addition, until which they are rebalanced
DESCENDING = 0.5  # of the work, until which plans are started from
GLANCE = 0.1  # of the work: to see whether the first plans of few tables are already the best
EARLY, EARLY_LEAST = 0.3, 0.1  # for many tables, random changes before the bound: until when, least time
BOUNDING, BOUNDING_LEAST = 0.4, 0.08  # the same for the bound, before random changes
CHANGING, CHANGING_LEAST = 0.85, 0.2  # until this share, and at least this long: the rest is for the bound
NEAR = 0.2  # of the work since bounds began, at most, for plans near their optima
REASONS = 0.1  # of the work, in addition: for the reasons per table
