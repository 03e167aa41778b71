"""Passes: each rewrites a graph or a program into a cheaper one that computes the same."""
