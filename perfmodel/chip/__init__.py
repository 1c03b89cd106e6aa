"""One chip of many cores: which way to look up which table, which cores do it, and the time of a batch."""
