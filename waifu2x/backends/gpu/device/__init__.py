"""The interface to a GPU library, and what crosses to a device."""
