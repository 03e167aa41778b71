"""Plans the run of a program: the box of each value, the order of phases, and places in memory."""
