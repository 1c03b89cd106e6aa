"""How a collective is predicted: which calibration, and a table of times for one group of ranks."""
