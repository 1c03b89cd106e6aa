"""What each unit of a search's work counts [ns]: about its time on one core, with what is done around it.

Fitted to the CPU time of searches of all sizes (``benchmarks/work_units.py``). A constant that is off makes a
search longer or shorter than its name says; it changes no answer between two runs.
"""

SCORING, SCORED_ROW = 220_000.0, 1_800.0  # one call that scores passes; a pass of it
CURVES, CURVE_POINT = 400_000.0, 20.0  # one call that reads the steps' curves; a point of one
LISTED = 8_500.0  # an option whose loads are computed
PRICED = 1.9  # a load of an option that is priced
PACKED_TABLE = 2_400.0  # a table that is packed
PLACED = 8.4  # a load of a rank that is looked at for a place
EVENED = 4.9  # a load of a change that is tried to make ranks even
PROGRAM, PROGRAM_ITERATION = 3_300_000.0, 120_000.0  # a linear program; an iteration of it
LINES = 4_500_000.0  # lines under a curve that are found
COSTED, COSTED_TABLE = 5_000_000.0, 1_450.0  # loads of a plan that are counted exactly; a table of it
EXACT = 4_000_000.0  # one call that takes the exact times of steps
