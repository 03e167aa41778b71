"""Pictures in files: what they hold, how they are read, and how they are written."""
