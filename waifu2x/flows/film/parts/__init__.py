"""The parts of a film: their records, and the runs that are still to be made."""
