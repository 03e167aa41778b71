"""Scripts by which a maintainer publishes a version; README.md says how."""
