"""Plans what is launched: tiles, phases, and where maps lie."""
