"""The networks of the field by the names of their weights, each family in its own module.

Each module has a function that makes the graph; `recognised.py` tells which one a file needs.
"""
