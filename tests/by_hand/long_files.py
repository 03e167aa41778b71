"""Memory while files of many pictures pass: `python -m tests.by_hand.long_files [--frames 3000]`.

An APNG, a GIF and a WebP of `--frames` frames, and a TIFF of a sixth as many pages, go through
`upscale_file` as they are, into each format that holds all of their pictures. Printed is the
memory of this process (resident, in MiB) when the 20th picture is written and at its highest after
that; a difference of more than --most MiB is a failure. WebP is put together at its end: of it,
what the encoder holds counts, too.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.helpers.contents import identity_models
from waifu2x.api import Upscaler
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.picture_work import WorkOptions
from waifu2x.flows.upscaling import upscale_file
from waifu2x.formats import write
from waifu2x.formats.table import OutputOptions, Quality
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Extent, Header, Timed

_SIDE = 256
_WARM = 20
_TARGETS = {"png": ("png", "tif", "gif", "webp"), "gif": ("gif", "png"), "webp": ("webp",)}
_TARGETS["tif"] = ("tif",)


def frame(number: int) -> NDArray[np.uint8]:
    """A gradient with a square that moves: no two frames are alike, and each packs well."""
    y, x = np.mgrid[0:_SIDE, 0:_SIDE]
    pixels = np.stack([y // 4, x // 4, (y + x) // 8], axis=-1).astype(np.uint8)
    top, left = divmod(7 * number, _SIDE - 16)
    pixels[top % (_SIDE - 16) :][:16, left : left + 16] = (255, 255 - number % 64, 0)
    return pixels


def make(path: Path, extension: str, count: int) -> None:
    """Writes a file of `count` pictures."""
    animated = extension != "tif"
    one = Extent(_SIDE, _SIDE, 3 * _SIDE**2)
    sink = write.FileSink(path, extension, Quality())
    sink.open(Header((one,) * (1 if animated else count), count, animated))
    for number in range(count):
        sink.add(Timed(Picture(frame(number)), 40.0 if animated else None))
    sink.close()


def resident() -> float:
    """MiB of this process."""
    with Path("/proc/self/status").open() as lines:
        kib = next(line.split()[1] for line in lines if line.startswith("VmRSS"))
    return int(kib) / 1024


def measured(source: Path, extension: str, upscaler: Upscaler) -> tuple[float, float, int]:
    """MiB at the 20th picture, the most after it, and how many pictures were written."""
    sizes: list[float] = []
    add = write.FileSink.add

    def counted(sink: write.FileSink, result: Timed) -> None:
        add(sink, result)
        sizes.append(resident())

    write.FileSink.add = counted  # type: ignore[method-assign, assignment]
    try:
        job = Job(source, source.with_name(f"out.{extension}"))
        output = Output(extension, Quality(), "overwrite", OutputOptions(strip=True))
        upscale_file(
            job, output, lambda: upscaler.enlarger, WorkOptions(max_pixels=1 << 30, in_flight=2)
        )
    finally:
        write.FileSink.add = add  # type: ignore[method-assign]
    return sizes[_WARM - 1], max(sizes[_WARM:]), len(sizes)


def main() -> None:
    """Measures all pairs of formats."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--frames", type=int, default=3000)
    parser.add_argument("--most", type=float, default=8.0)
    arguments = parser.parse_args()
    grown = False
    with tempfile.TemporaryDirectory() as folder:
        models = identity_models(Path(folder) / "identity")
        # Every picture is large enough to stay as it is: what is measured is what surrounds it.
        with Upscaler(2, only_smaller_than=1, model=str(models), backend="numpy") as upscaler:
            for extension, targets in _TARGETS.items():
                source = Path(folder) / f"in.{extension}"
                make(source, extension, arguments.frames // (6 if extension == "tif" else 1))
                for target in targets:
                    gc.collect()
                    warm, most, count = measured(source, target, upscaler)
                    much = most - warm > arguments.most and target != "webp"
                    grown |= much
                    print(
                        f"{extension:4} to {target:4} {count:5} pictures: {warm:6.1f} MiB at the"
                        f" {_WARM}th, {most:6.1f} at most{'  GREW' if much else ''}",
                        flush=True,
                    )
    raise SystemExit(int(grown))


if __name__ == "__main__":
    main()
