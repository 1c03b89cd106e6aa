"""The options of every command, each declared once with type, default and help; no answers are made here."""
