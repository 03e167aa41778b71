"""A film is read by a process of its own: that process, and what asks it."""
