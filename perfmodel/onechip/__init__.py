"""One chip: which way to look up which table, which core owns it, and what a batch takes."""
