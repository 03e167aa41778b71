"""Options: their values, their settings, and the files that they name."""
