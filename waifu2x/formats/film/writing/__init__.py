"""Films that are written: encoders, containers, and streams that are copied."""
