"""Who makes parts: the devices of this machine, the workers of a cluster."""
