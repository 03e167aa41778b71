"""What happens to frames between the film that is read and the sink that takes results."""
