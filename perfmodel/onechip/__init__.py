"""One chip: how to look up which table, which core does it, and the time of a batch."""
