"""Text, pages and figures about one many-core chip: chips, ways to look up, mappings, simulations."""
