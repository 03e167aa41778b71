"""The work on many files, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from waifu2x.api import Upscaler
from waifu2x.flows.batch.driver import DeviceDriver, calls_at_once
from waifu2x.flows.batch.request import FileRequest
from waifu2x.flows.jobs import Identity, InFlight, Job, OnNotice, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.formats.limits import MAX_PIXELS


def run(
    jobs: Iterable[Job | None],
    upscaler: Upscaler,
    output: Output,
    *,
    in_flight: InFlight | None = None,
    many: bool = False,
    max_pixels: int = MAX_PIXELS,
    sources: frozenset[Identity] = frozenset(),
    sharing: int = 1,
    on_progress: Callable[[Job, float], None] = lambda job, part: None,
    on_notice: OnNotice = lambda job, note: None,
) -> Generator[Outcome]:
    """The outcome of each job, as it ends; one picture's failure does not concern the others.

    But where a device has stopped working, and no other is there, the rest fail untouched.

    `jobs` is asked for the next job when somebody is free for it; None says that there is none now,
    and is asked again. Without `in_flight`, as many pictures are under way as keep the network
    busy, as far as cores and memory go: on a GPU from the start, where there are `many`, for which
    `worker.prepare` has been called. Nothing in `sources` is ever replaced. `sharing` is how many
    runs, in processes of their own, share this machine.

    Closing the iterator, or an interrupt, ends the work at once: finished files stay, unfinished
    ones leave nothing.
    """
    engine = upscaler.engine
    request = FileRequest(upscaler, output, max_pixels, calls_at_once(engine, in_flight))
    driver = DeviceDriver(
        jobs,
        engine,
        lambda job: request,
        in_flight=in_flight,
        sources=sources,
        sharing=sharing,
        on_progress=on_progress,
        on_notice=on_notice,
    )
    try:
        driver.start(many and engine.backend.device.is_gpu)
        while (ended := driver.ended.get()) is not None:
            if isinstance(ended, BaseException):
                raise ended
            yield ended
    finally:
        driver.stop()
