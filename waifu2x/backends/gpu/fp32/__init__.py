"""The fp32 executor, on the multiply-add units of any device."""
