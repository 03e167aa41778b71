"""A page on one's own machine, and its HTTP interface: `waifu2x serve`."""
