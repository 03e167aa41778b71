"""Lowers a network's graph to a program of steps that every engine can run.

`ops` defines the steps and `lower` makes them of a Model; `passes` rewrite programs into cheaper
ones; `plan` finds the boxes, phases and memory places by which an engine runs a program.
"""
