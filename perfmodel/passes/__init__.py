"""A pass: what a plan says of each table, and the loads, the memory and the time of every rank."""
