"""Passes: programs rewritten into cheaper ones that compute the same."""
