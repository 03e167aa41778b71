"""Work that threads do ahead of who takes the results."""

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
    """The results of all items, of which a few are worked on ahead by so many threads.

    0 is none but the caller's. One begins the items in their order, each after the last has ended.
    Raises what `work` raises, where its result would be.
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
