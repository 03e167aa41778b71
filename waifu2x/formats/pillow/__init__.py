"""Picture formats that Pillow decodes and encodes."""
