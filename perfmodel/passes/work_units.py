"""Weight of each unit of a search's work [ns]: about its time on one core, with its overhead.

Fitted to the CPU time of searches of all sizes (``benchmarks/work_units.py``). A wrong constant makes a
search longer or shorter than its name says; answers stay reproducible.
"""

SCORING, SCORED_ROW = 220_000.0, 1_800.0  # one call that scores passes; one pass in it
CURVES, CURVE_POINT = 400_000.0, 20.0  # one call that evaluates the steps' curves; one point
LISTED = 8_500.0  # an option whose loads are computed
PRICED = 1.9  # a load of an option that is priced
PACKED_TABLE = 2_400.0  # a table that is packed
PLACED = 8.4  # a load of a rank that is examined for a place
EVENED = 4.9  # a load of a change that is tried in rebalancing
LINES = 4_500_000.0  # lines under a curve
COSTED, COSTED_TABLE = 5_000_000.0, 1_450.0  # an exact count of a plan's loads; one table of it
EXACT = 4_000_000.0  # one call that computes exact times of steps
