"""A film enlarged in parts, each of them a file, which are joined at the end."""
