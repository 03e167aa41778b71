"""Plans launches: tiles, phases, and where maps lie."""
