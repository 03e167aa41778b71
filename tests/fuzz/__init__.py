"""Fuzz targets, one for each reader of what strangers hand in, and their corpus."""
