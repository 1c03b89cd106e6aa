"""What a plan says, and what it costs: loads, memory and time of every rank."""
