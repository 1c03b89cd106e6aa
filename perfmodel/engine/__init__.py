"""A pass: what a plan specifies for each table, and the loads, memory and time of every rank."""
