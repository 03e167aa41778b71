"""Crops by other models, and a whole picture, over HTTP from `waifu2x serve`.

    python -m benchmarks.bench_crops [--backend cuda] [--models cunet/art,vgg_7/art]

Two servers after each other: the cache of the first is empty, the second finds what the first has
compiled. Each first makes a picture by `--first`, so that its engine is warm, and is then asked for
a crop of 512x512 pixels by each of the other models, as the page asks: the time from the request
until the last byte of the PNG, for the first crop and for more. Every crop is compared with what
the same models make of the same pixels in this process. Then pictures of 1920x1080 are sent: the
time until the job is done, and until both views for the slider are there. At last the same in this
process, without a server: a first crop in its parts, and pictures from file to file.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import os
import pstats
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from PIL import Image

from benchmarks.bench_serve import EXAMPLES, Client, Following, running

CROP = 512
MORE = 5
"""Crops, and pictures, after the first."""


def picture(width: int, height: int) -> Image.Image:
    """A drawing of that size."""
    with Image.open(EXAMPLES / "drawn.png") as example:
        return example.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--first", default="upconv_7/art", help="the model that is warm")
    parser.add_argument("--models", default="cunet/art,vgg_7/art", help="those of crops")
    parser.add_argument("--noise", default="auto", help="as the page asks, unless it is changed")
    parser.add_argument("--size", default="1920x1080")
    parser.add_argument("--profile", type=int, default=0, help="lines of a profile, for each model")
    options = parser.parse_args()
    models = options.models.split(",")
    width, height = map(int, options.size.split("x"))
    whole = picture(width, height)
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name) / "cache"
        # The folder of the compiled kernels is this process's, too.
        os.environ["WAIFU2X_CACHE_DIR"] = str(cache)
        for start in ("empty", "filled"):
            begun = time.perf_counter()
            with running(cache, "--backend", options.backend) as (_, client):
                print(f"cache {start}: server started in {time.perf_counter() - begun:.2f} s")
                made = over_http(client, whole, models, options)
        in_process(whole, made, Path(name), options)


def over_http(
    client: Client, whole: Image.Image, models: Sequence[str], options: argparse.Namespace
) -> dict[str, bytes]:
    """Prints how long a server takes; the crop by each model."""
    file = io.BytesIO()
    whole.save(file, "PNG", compress_level=1)
    content, following = file.getvalue(), Following(client)
    following.wait(0)

    def add(model: str) -> tuple[str, float, float]:
        """A job that is done, seconds until it was, and until both views were there."""
        finished = client.finished()
        query = urlencode({"name": "x.png", "model": model, "noise": options.noise})
        begun = time.perf_counter()
        identity = str(client.data("POST", f"/api/jobs?{query}", content)["id"])
        following.wait(finished + 1)
        done = time.perf_counter() - begun
        for view in ("source", "view"):
            client.ask("GET", f"/api/jobs/{identity}/{view}")
        return identity, done, time.perf_counter() - begun

    identity, took, _ = add(options.first)
    print(f"  the first picture, by {options.first}: {took:.2f} s")
    made = {}
    for model in models:
        query = urlencode(
            {"model": model, "noise": options.noise, "scale": 2, "x": 0, "y": 0,
             "width": CROP, "height": CROP}
        )  # fmt: skip
        seconds = []
        for _ in range(1 + MORE):
            begun = time.perf_counter()
            made[model] = client.ask("GET", f"/api/jobs/{identity}/crop?{query}")
            seconds.append(time.perf_counter() - begun)
        print(f"  a crop of {CROP}x{CROP} by {model}: {shown(seconds)}")
    for model in dict.fromkeys([options.first, *models]):
        times = [add(model)[1:] for _ in range(1 + MORE)]
        done, seen = ([each[column] for each in times] for column in (0, 1))
        print(f"  {whole.width}x{whole.height} by {model}, sent until done: {shown(done)}")
        print(f"  and until both views are there: {shown(seen)}", flush=True)
    return made


def in_process(
    whole: Image.Image, made: dict[str, bytes], folder: Path, options: argparse.Namespace
) -> None:
    """Compares the crops; prints where the time of a first one goes, and how long files take."""
    from waifu2x import Engine, Upscaler

    noise = {"auto": "auto", "none": None}.get(options.noise, options.noise)
    crop = np.asarray(whole.crop((0, 0, CROP, CROP)))
    whole.save(folder / "whole.png", compress_level=1)
    with Engine(options.backend) as engine:
        with Upscaler(2, model=options.first, noise=noise, engine=engine) as upscaler:
            upscaler(crop)
        for model, content in made.items():
            profile = cProfile.Profile()
            if options.profile:
                profile.enable()
            begun = time.perf_counter()
            with Upscaler(2, model=model, noise=noise, engine=engine) as upscaler:
                opened = time.perf_counter()
                expected = upscaler(crop)
                first = time.perf_counter()
                profile.disable()
                upscaler(crop)
                second = time.perf_counter()
                files = []
                for _ in range(1 + MORE):
                    start = time.perf_counter()
                    upscaler.upscale_file(folder / "whole.png", folder / "o.png", overwrite=True)
                    files.append(time.perf_counter() - start)
            assert np.array_equal(expected, np.asarray(Image.open(io.BytesIO(content)))), model
            print(
                f"{model} in this process: opened in {opened - begun:.3f} s, first crop"
                f" {first - opened:.3f} s, second {second - first:.3f} s; the same pixels as sent"
            )
            print(f"  {whole.width}x{whole.height} from file to file: {shown(files)}", flush=True)
            if options.profile:
                pstats.Stats(profile).sort_stats("tottime").print_stats(options.profile)


def shown(seconds: Sequence[float]) -> str:
    """The first of some times, and those that follow."""
    rest = ", ".join(f"{each:.3f}" for each in seconds[1:])
    middle = statistics.median(seconds[1:])
    return f"first {seconds[0]:.3f} s, then {middle:.3f} s (median of {rest})"


if __name__ == "__main__":
    main()
