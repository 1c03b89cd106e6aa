"""From samples to curves and to the unknowns of laws."""
