"""Compiles the OpenCL C of `kernels/` to SPIR-V: see `docs/internals/vulkan.md`."""

REVISION = 2
"""To be raised with every change of what is generated: cached code depends on it."""
