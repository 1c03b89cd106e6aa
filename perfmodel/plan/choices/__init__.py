"""The choices for each table: shardings, parts, hot rows, memory, constraints."""
