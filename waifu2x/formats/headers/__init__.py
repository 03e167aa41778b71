"""Headers of picture files, read before a decoder sees them."""
