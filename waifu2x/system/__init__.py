"""The machine: files, stores, cache, memory, cores, time."""
