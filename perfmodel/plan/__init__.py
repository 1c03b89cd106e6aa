"""Plans: which rank holds which part of which table, the time of a step, and the resource that limits it."""
