"""Everything that is printed: outcomes, progress, reports."""
