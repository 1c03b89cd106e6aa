"""What may be chosen for each table: shardings, parts, hot rows, memory, constraints."""
