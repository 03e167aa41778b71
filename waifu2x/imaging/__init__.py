"""Pictures in memory: planes, colour, transparency, sizes, comparison."""
