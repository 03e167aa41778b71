"""Where results go: into parts, a film in one go, raw frames, numbered pictures."""
