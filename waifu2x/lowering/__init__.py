"""From a network as a graph to steps that every engine can run.

`steps` says what engines are handed, `lower` makes it of a Model, `geometry` says which part of
each value a box of the result needs, `phases` what is computed between two means, and what is kept.
"""
