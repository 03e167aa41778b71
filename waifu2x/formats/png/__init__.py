"""PNG: its chunks and animations, read and written by ourselves."""
