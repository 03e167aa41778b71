"""The loop from a source to a sink, with items that are numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from waifu2x.backends import Progress, ignore
from waifu2x.flows.flow import StoppedError, flow
from waifu2x.imaging.streams import Extent, Header


class Numbers:
    """A source of `count` numbers that keeps count of those that were read."""

    def __init__(self, count: int, known: bool = True, bad: int | None = None) -> None:
        self.header = Header((Extent(1, 1, 1),), count if known else None)
        self.read = 0
        self.closed = False
        self._count = count
        self._bad = bad

    def __iter__(self) -> Iterator[int]:
        for number in range(self._count):
            if number == self._bad:
                raise ValueError(f"{number} is bad")
            self.read += 1
            yield number

    def close(self) -> None:
        self.closed = True


class Kept:
    """A sink that keeps what it gets, and how many items the source had read by then."""

    def __init__(self, source: Numbers) -> None:
        self.results: list[int] = []
        self.read: list[int] = []
        self.events: list[str] = []
        self._source = source

    def open(self, header: Header) -> None:
        self.events.append("open")

    def add(self, result: int) -> None:
        self.results.append(result)
        self.read.append(self._source.read)

    def close(self) -> None:
        self.events.append("close")

    def abort(self) -> None:
        self.events.append("abort")


def doubled(number: int, on_progress: Progress) -> int:
    on_progress(0.5)
    on_progress(0.5)
    return 2 * number


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_all_in_order_and_few_ahead(in_flight: int, known: bool) -> None:
    source, parts = Numbers(50, known), list[float]()
    sink = Kept(source)
    flow(source, doubled, sink, in_flight=in_flight, on_progress=parts.append)
    assert sink.results == [2 * number for number in range(50)]
    assert sink.events == ["open", "close"]
    assert source.closed
    # When a result is written, at most `in_flight` more are in flight, and one is read ahead.
    assert all(read <= index + in_flight + 1 for index, read in enumerate(sink.read))
    assert sum(parts) == pytest.approx(1.0 if known else 0.0)


def test_results_wait_while_the_sink_is_busy() -> None:
    """Two threads work, and go on while the first result is written."""
    made = [threading.Event() for _ in range(6)]
    threads = set()

    def work(number: int, on_progress: Progress) -> int:
        threads.add(threading.get_ident())
        made[number].set()
        return number

    class Busy(Kept):
        def add(self, result: int) -> None:
            if result == 0:
                assert made[4].wait(30)
            super().add(result)

    source = Numbers(6)
    sink = Busy(source)
    flow(source, work, sink, in_flight=5, workers=2)
    assert sink.results == list(range(6))
    assert len(threads) <= 2


def test_nothing_is_a_whole_output_too() -> None:
    source = Numbers(0)
    sink = Kept(source)
    flow(source, doubled, sink)
    assert (sink.events, sink.results) == (["open", "close"], [])


def test_the_first_result_may_come_last() -> None:
    """Work that ends in another order than it began in."""
    begun = [threading.Event() for _ in range(4)]

    def work(number: int, on_progress: Progress) -> int:
        begun[number].set()
        if number == 0:
            assert begun[2].wait(30)  # three are worked on at a time
        return number

    source = Numbers(4)
    sink = Kept(source)
    flow(source, work, sink, in_flight=4)
    assert sink.results == [0, 1, 2, 3]


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("where", ["read", "work", "add", "close"])
def test_an_error_anywhere_aborts(where: str, in_flight: int) -> None:
    source = Numbers(20, bad=7 if where == "read" else None)

    class Bad(Kept):
        def add(self, result: int) -> None:
            super().add(result)
            if where == "add" and result == 14:
                raise ValueError("7 is bad")

        def close(self) -> None:
            super().close()
            if where == "close":
                raise ValueError("7 is bad")

    def work(number: int, on_progress: Progress) -> int:
        if where == "work" and number == 7:
            raise ValueError("7 is bad")
        return doubled(number, on_progress)

    sink = Bad(source)
    with pytest.raises(ValueError, match="7 is bad"):
        flow(source, work, sink, in_flight=in_flight)
    assert sink.events[-1] == "abort"
    assert sink.events.count("close") == (where == "close")
    assert source.closed
    if where != "close":
        assert sink.results == [0, 2, 4, 6, 8, 10, 12, 14][: 8 if where == "add" else 7]


def test_the_first_error_in_order_counts() -> None:
    """The third item fails while it is read, the first while it is worked on, and later."""
    source = Numbers(5, bad=2)
    reading = threading.Event()

    def work(number: int, on_progress: Progress) -> int:
        if number == 0:
            assert reading.wait(30)
            raise ValueError("0 is bad")
        reading.set()
        return number

    sink = Kept(source)
    with pytest.raises(ValueError, match="0 is bad"):
        flow(source, work, sink, in_flight=4)


def test_an_interrupt_stops_what_is_under_way() -> None:
    ended, go_on = list[type[BaseException] | None](), threading.Event()

    def work(number: int, on_progress: Progress) -> int:
        if number == 0:
            return 0
        assert go_on.wait(30)
        try:
            while True:
                on_progress(0.0)
        except StoppedError as error:
            ended.append(type(error))
            raise

    class Interrupted(Kept):
        def add(self, result: int) -> None:
            go_on.set()
            raise KeyboardInterrupt

    source = Numbers(10)
    sink = Interrupted(source)
    with pytest.raises(KeyboardInterrupt):
        flow(source, work, sink, in_flight=3, on_progress=ignore)
    assert sink.events == ["open", "abort"]
    assert ended
    assert set(ended) == {StoppedError}
