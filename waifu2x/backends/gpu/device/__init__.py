"""What a GPU library offers to the shared engine, and what crosses to a device."""
