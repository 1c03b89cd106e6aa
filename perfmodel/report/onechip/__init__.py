"""What is said of one chip, as text, pages and figures: chips, ways to look up, mappings, simulations."""
