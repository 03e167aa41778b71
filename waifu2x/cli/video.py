"""`waifu2x video IN OUT`."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waifu2x.cli import report
from waifu2x.cli.arguments import arguments_of, describe, opened
from waifu2x.cli.command import FILE, IN_AND_OUT, SIZE, Choice, Command, Pixels, option
from waifu2x.cli.interrupts import heard_at_once
from waifu2x.cli.options import level_option, network_options, scale_option, tta_option
from waifu2x.cli.settings import config_option
from waifu2x.cli.volume import volume_options
from waifu2x.flows.jobs import Job, may_write

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from waifu2x.api import Upscaler
    from waifu2x.backends import Pin

_CODECS = (
    "x264", "x265", "av1", "vp9", "ffv1", "prores",
    *(f"{coded}_{maker}" for maker in ("nvenc", "qsv", "amf") for coded in ("h264", "hevc", "av1")),
)  # fmt: skip


@click.command(cls=Command, short_help="Enlarge and denoise a film.")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@level_option
@scale_option
@option("--width", group=SIZE, type=Pixels(), metavar="PX", help="Width of the result in pixels.")
@option("--height", group=SIZE, type=Pixels(), metavar="PX", help="Height of the result.")
@option(
    "-c",
    "--codec",
    group=FILE,
    type=Choice(_CODECS, ("x264", "x265", "av1", "vp9", "ffv1", "prores")),
    metavar="NAME",
    help="Encoder.",
)
@option("--crf", group=FILE, type=float, metavar="N", help="Quality: less is better.")
@option("--preset", group=FILE, metavar="NAME", help="Speed of the encoder.")
@option("--overwrite", group=IN_AND_OUT, is_flag=True, help="Replace OUT.")
@tta_option
@network_options
@volume_options
@config_option
def video(
    source: Path,
    target: Path,
    codec: str | None,
    crf: float | None,
    preset: str | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Enlarge and denoise the film IN into the new film OUT.

    \b
    waifu2x video film.mkv large.mkv
    """
    # With NumPy: late, so that a help need not wait for it.
    from waifu2x.flows.film.enlarging import FrameEnlarger
    from waifu2x.flows.film.film_reader import FilmReader
    from waifu2x.flows.film.making import make_film
    from waifu2x.flows.film.request import FilmJob, prepare
    from waifu2x.formats.film.codecs import Wish
    from waifu2x.imaging import sizes

    arguments = arguments_of(
        fit=None, longer_side=None, shorter_side=None, min_size=None, only_smaller_than=None,
        tile=None, **options,
    )  # fmt: skip
    may_write(Job(source, target), "overwrite" if overwrite else "fail")
    job = FilmJob(
        source,
        target,
        Wish(codec, crf, preset),
        settings=tuple((name, str(arguments[name])) for name in _DECIDING),
    )
    request = sizes.request(**{name: arguments[name] for name in ("scale", "width", "height")})
    start = time.monotonic()
    with heard_at_once(), ExitStack() as held:
        upscalers: list[Upscaler] = []

        def pin(array: NDArray[Any]) -> Pin:
            return upscalers[0].engine.backend.pin(array)

        reader = held.enter_context(FilmReader(source, pin))
        pictures = reader.film.pictures
        plan = request.plan(pictures.height, pictures.width, lambda scale: 1)
        prepared = prepare(reader, job, plan.height, plan.width)
        upscaler = held.enter_context(opened(arguments))
        upscalers.append(upscaler)
        report.detail(describe(upscaler))
        shape = prepared.shape
        work = FrameEnlarger(
            upscaler.networks,
            upscaler.enlarger,
            (pictures.pixels, pictures.colours),
            (shape.encoding.pixels, shape.colours),
            (pictures.height, pictures.width),
        )
        made = make_film(
            reader,
            job,
            prepared,
            work,
            in_flight=upscaler.engine.backend.calls_at_once + 1,
            pin=upscaler.engine.backend.pin,
            replace=overwrite,
        )
    seconds = time.monotonic() - start
    report.say(f"{target}: {made.frames} frames, {shape.width}x{shape.height}, {seconds:.1f} s")


_DECIDING = ("model", "noise", "tta", "backend", "precision")
