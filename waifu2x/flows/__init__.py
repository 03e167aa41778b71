"""Work from sources to sinks: one file, folders, archives, clusters."""
