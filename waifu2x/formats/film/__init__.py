"""Films: containers, streams, decoders and encoders, by PyAV (FFmpeg)."""
