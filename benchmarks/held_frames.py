"""Which frames `--duplicates tolerant` holds, over drawn films in which only little moves.

    python -m benchmarks.held_frames

Each film is drawn on twos and encoded by x264. A moved frame that is held would be an error of the
picture; a held frame that is computed costs only time. Where the encoder has coded a moved drawing
as the one before, the film holds it itself: such frames are counted apart.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from waifu2x.flows.film.frames.frame_source import is_held
from waifu2x.formats.film.library import library

WIDTH, HEIGHT, FINER = 640, 360, 4
DRAWINGS = 12
MOVEMENTS = (
    "mouth of 8", "mouth of 6", "mouth of 4", "eyelids", "gaze by 1", "jaw by 1", "dot of 4",
    "dot of 3", "dot of 2", "square of 8 by 1", "square of 4 by 1", "pan by 1", "pan by 0.5",
    "fade by 1", "fade by 2", "nothing",
)  # fmt: skip
"""The movement from a drawing to the next, in pixels or levels of 255."""
CODED = 0.1
"""The least share of a move that is in the coded film, unless the encoder holds the drawing."""
GOES = (0, 2, 3, 2)
"""How far what goes to and fro is, drawing by drawing, of 4."""


def drawing(number: int, movement: str, paint: NDArray[np.float32]) -> NDArray[np.uint8]:
    """A head before hills, as RGB; `paint` is added to it."""
    what, _, amount = movement.replace(" of ", " by ").partition(" by ")
    far = float(amount.removesuffix(" by 1") or 0)
    gone = GOES[number % 4]
    picture = Image.new("RGB", (WIDTH * FINER, HEIGHT * FINER), (150, 170, 200))
    pen = ImageDraw.Draw(picture)

    def at(*points: float) -> list[float]:
        return [point * FINER for point in points]

    panned = number * far if what == "pan" else 0
    for hill in range(14):
        x = hill * 55 - 60 + panned
        colour = (60 + hill * 9, 110 + hill * 31 % 80, 70)
        top = 150 + hill * 37 % 60
        pen.polygon(at(x, HEIGHT, x + 40, top, x + 90, HEIGHT), colour, (20, 30, 20), 2 * FINER)
    for blade in range(60):
        x, y = blade * 97 % WIDTH + panned, 200 + blade * 53 % 150
        pen.line(at(x, y, x + 9, y - 6), (30, 60, 30), FINER)
    pen.ellipse(at(220, 60, 420, 300), (250, 220, 195), (40, 20, 20), 3 * FINER)
    for hair in range(22):
        pen.line(at(220 + hair * 9, 100, 230 + hair * 9 - hair % 5 * 6, 40), (70, 30, 20), 12)
    lid = 1 - gone / 4 if what == "eyelids" else 1
    look = (0, 1, 2, 1)[number % 4] if what == "gaze" else 0
    for x in (275, 365):
        pen.ellipse(at(x - 16, 160 - 22 * lid, x + 16, 160 + 22 * lid), "white", (30, 10, 10), 8)
        pen.ellipse(at(x - 8 + look, 160 - 12 * lid, x + 8 + look, 160 + 12 * lid), (40, 80, 160))
    if what == "mouth":
        tall = far * (1 - gone / 4)
        mouth = at(320 - far / 2, 245 - tall / 2, 320 + far / 2, 245 + tall / 2)
        pen.ellipse(mouth, (150, 50, 50), (60, 20, 20), FINER)
    if what == "jaw":
        pen.line(at(260, 270 + number % 2, 380, 270 + number % 2), (200, 150, 130), 2 * FINER)
    if what == "dot" and number % 2:
        pen.rectangle(at(100, 80, 100 + far - 0.25, 80 + far - 0.25), (255, 255, 220))
    if what == "square":
        x = 100 + number
        pen.rectangle(at(x, 300, x + far - 0.25, 300 + far - 0.25), (200, 40, 40))
    small = picture.resize((WIDTH, HEIGHT), Image.Resampling.BOX)
    faded = number * far if what == "fade" else 0
    levels = np.asarray(small, np.float32) + paint[..., None] - faded
    made: NDArray[np.uint8] = np.clip(levels + 0.5, 0, 255).astype(np.uint8)
    return made


def paint(seed: int) -> NDArray[np.float32]:
    """The texture of a painted background."""
    noise = np.random.default_rng(seed).normal(0, 1, (HEIGHT, WIDTH)).astype(np.float32)
    found = noise * 2
    for radius, strength in ((1, 1.2), (3, 2.0)):
        whole = Image.fromarray((noise * 20 + 128).clip(0, 255).astype(np.uint8))
        soft = whole.filter(ImageFilter.GaussianBlur(radius))
        found += (np.asarray(soft, np.float32) - 128) * strength
    return found


def in_planes(picture: NDArray[np.uint8]) -> Any:
    """A frame of 4:2:0."""
    return library().VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv420p")


def samples(plane: Any) -> NDArray[np.uint8]:
    """(rows, columns) of a plane."""
    return np.frombuffer(plane, np.uint8).reshape(plane.height, -1)[:, : plane.width].copy()


def encoded(drawings: Sequence[NDArray[np.uint8]], crf: int, tune: str) -> list[list[Any]]:
    """The planes of the frames of a film on twos, as they are decoded."""
    av = library()
    target = io.BytesIO()
    with av.open(target, "w", format="matroska") as out:
        options = {"crf": str(crf), **({"tune": tune} if tune else {})}
        stream = out.add_stream("libx264", rate=24, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(2 * len(drawings)):
            frame = in_planes(drawings[number // 2])
            frame.pts = number
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    target.seek(0)
    with av.open(target) as film:
        return [[samples(plane) for plane in frame.planes] for frame in film.decode(video=0)]


def shown(frames: Sequence[Any]) -> list[int]:
    """The number of the frame whose result each shows: its own, or that of the one that was
    computed last, which it is compared with."""
    found = [0]
    for number, frame in enumerate(frames[1:], 1):
        is_same = is_held(frames[found[-1]], frame, "tolerant", 8)
        found.append(found[-1] if is_same else number)
    return found


def coded_share(frames: Sequence[Any], drawings: Sequence[NDArray[Any]], a: int, b: int) -> float:
    """How much of what moves between two drawings moves between the decoded frames `a` and `b`: 1
    for all of it, 0 where the encoder has coded one as the other. By luma, in least squares."""
    drawn = [samples(in_planes(drawings[number // 2]).planes[0]) for number in (a, b)]
    moved = drawn[1].astype(np.float64) - drawn[0]
    decoded = frames[b][0].astype(np.float64) - frames[a][0]
    return float((moved.ravel() @ decoded.ravel()) / (moved.ravel() @ moved.ravel()))


def main() -> None:
    """Prints the table."""
    crfs = (16, 18, 20, 22, 24)
    print("| what moves | " + " | ".join(f"crf {crf}" for crf in crfs) + " | moved frames held |")
    print("|---|" + "---|" * (len(crfs) + 1))
    found_in_all, repeats, wrong_in_all = 0, 0, 0
    uncoded: list[str] = []
    textures = (np.zeros((HEIGHT, WIDTH), np.float32), paint(1))
    for movement in MOVEMENTS:
        cells, wrong = [], 0
        for crf in crfs:
            found = 0
            for texture, tune in product(textures, ("", "animation")):
                drawings = [drawing(number, movement, texture) for number in range(DRAWINGS)]
                frames = encoded(drawings, crf, tune)
                told = shown(frames)
                found += sum(told[number] != number for number in range(1, 2 * DRAWINGS, 2))
                for number in range(2, 2 * DRAWINGS, 2):
                    of = told[number]
                    is_moved = not np.array_equal(drawings[of // 2], drawings[number // 2])
                    if of == number or not is_moved:
                        continue
                    share = coded_share(frames, drawings, of, number)
                    if share < CODED:
                        uncoded.append(f"{movement}, crf {crf}: {share:.1%} of the move is coded")
                    else:
                        wrong += 1
            cells.append(f"{found / (4 * DRAWINGS):.0%}")
            found_in_all += found
            repeats += 4 * DRAWINGS
        wrong_in_all += wrong
        print(f"| {movement} | " + " | ".join(cells) + f" | {wrong} |", flush=True)
    print(f"\n{found_in_all / repeats:.0%} of {repeats} repeats are found; {wrong_in_all} moved")
    print(f"{len(uncoded)} that the encoder holds itself", *uncoded, sep="\n")


if __name__ == "__main__":
    main()
