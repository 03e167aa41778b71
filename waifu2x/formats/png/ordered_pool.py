"""Threads that work ahead and deliver their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_order(
    work: Callable[[_Item], _Result], items: Sequence[_Item], workers: int
) -> Generator[_Result]:
    """Yields `work(item)` in order, computed by `workers` threads; with 0, in the caller's.

    One worker begins each item after the last has ended. Raises what `work` raises, in the place of
    its result.
    """
    if not workers:
        yield from map(work, items)
        return
    waiting: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="waifu2x-png") as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
