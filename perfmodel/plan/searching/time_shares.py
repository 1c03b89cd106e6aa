"""How a search divides its time: shares of it, and how many seconds or parts at least or at most."""

QUICK, STARTING = 0.3, 0.45  # of the time, at most: for quick plans, for all plans to begin with
STARTING_S, STARTING_LEAST = 1.5, 0.3  # and of a longer time: so many seconds, and so much of that share
EVENING = 0.45  # of that time more, until when they are made even
DESCENDING = 0.5  # of the time, until when plans are begun from
HELPERS = 0.1  # of the time: plans are changed until other processes have begun
GLANCE = 0.1  # of the time: whether the first plans of few tables are the best already
EARLY, EARLY_LEAST = 0.3, 0.1  # until when many tables are changed at random before the bound, and how long
BOUNDING_LEAST = 0.15  # of the time, however long the first plans took
BOUNDING = 0.55  # of the time, before plans are changed at random
PARTS_FIRST, PARTS_LEAST = 0.15, 0.03  # the same where a bound by rooms follows
WHOLE = 0.2  # of what is left of the time: a program with whole tables must begin to rise by then
CHANGING, CHANGING_LEAST = 0.7, 0.2  # until when, and how long: the rest is for the bounds
LISTED, LISTED_LEAST = 0.85, 0.1  # the same for the bound of the listed schemes: the rest is for all plans
STALLED, RISE, PARTS = 0.1, 0.002, 50  # of the time: a bound of many parts that rises no more is left
ANSWERING = 0.4  # of the time, at most, is left for the answer
PLANS = 4  # times as long as one plan takes to make and to price, of many tables
REASONS, REASON_S = 0.1, 0.003  # and for the next best of the tables; of one of them
NEAR = 0.2  # of the time since bounds were begun, at most, for plans near their optima
