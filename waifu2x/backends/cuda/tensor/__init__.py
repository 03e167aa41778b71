"""The executor over matrix units."""
