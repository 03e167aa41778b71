"""The parts of a film: what is known of them, and which are to be made by whom."""
