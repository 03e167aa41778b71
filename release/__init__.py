"""What a maintainer needs to publish a version; README.md says how."""
