"""Runs programs in fp32, on the multiply-add units of any device."""
