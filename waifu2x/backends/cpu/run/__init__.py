"""Runs packed programs: strips of rows, taken from a queue by threads."""
