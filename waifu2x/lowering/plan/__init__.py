"""Plans: which part of each value is computed, in what order, and where it lies."""
