"""The frames of a film, from its reader to the sink of results."""
