"""Films that are read: demuxers, decoders, and what is checked before."""
