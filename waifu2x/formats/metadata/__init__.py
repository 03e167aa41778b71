"""Metadata and colour profiles: read from files, corrected for results, stored in their format."""
