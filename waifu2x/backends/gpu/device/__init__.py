"""Defines the interface to a GPU library, and the transfer of data to and from a device."""
