"""How a search divides its effort among its phases: shares of the total, with limits of counted work."""

QUICK, STARTING = 0.3, 0.6  # of the work, at most: for quick plans, for all starting plans
STARTING_S, STARTING_LEAST = 1.5, 0.3  # with more effort: so many seconds, at least this part of the share
EVENING = 0.25  # of that work in addition, until which they are rebalanced
DESCENDING = 0.5  # of the work, until which plans are started from
CARRIED = 0.1  # of the work: for a plan of other GPUs
REASONS = 0.1  # of the work, in addition: for the reasons per table
