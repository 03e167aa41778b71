"""Runs packed programs in strips of rows, which threads take from a queue."""
