"""Makers of parts: this process, the devices of this machine, the workers of a cluster."""
