"""What `choosing.py` has found for networks that many use, so that their first picture need not
wait for it. `python benchmarks/precision.py --trusted` measures them again, and prints this table;
tests/backends/test_trusted.py holds it to the device where there is one."""

from __future__ import annotations

from collections.abc import Mapping

RECORDED: Mapping[str, float] = {}
"""By the first 16 digits of the model's digest."""
