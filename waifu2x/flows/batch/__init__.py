"""Makes many files, several at a time: folders, archives, devices, clusters."""
