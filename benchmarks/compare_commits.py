"""Two checkouts of this project against each other: the same bits, and in how much time?

    git worktree add ../before COMMIT
    python benchmarks/compare_commits.py ../before . [--backend cpu] [--models cunet/art ...]
        [--precisions auto fp32] [--timed vgg_7/art cunet/art] [--size 480x270] [--rounds 5]

Each checkout runs in its process, and the two take turns, so that drift of the machine's speed
meets them alike. Both are used through the public interface, which every version has.

Bits: each model of each set, by role (noise level and scale), in every precision that both
checkouts have. Each runs on a crop of odd size of a shipped picture, whole and in tiles, and on a
stack of three crops; sets of more than four roles take all shapes for two of them. `--roles few`
leaves it at these. Times, and bits: the sets, or files of models, of `--timed`, doubled, by
processor time on one core for `cpu`, by the clock for GPUs. Ends with 1 if a bit differs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

_PRECISIONS = ("fp32", "int16", "bf16", "fp16", "auto")
_EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_CROPS = {"whole": (83, 57, None), "tiles": (131, 107, 48), "stack": (3, 41, 67)}
"""Rows, columns and tile of one picture; number, rows and columns of a stack."""


class Checkout:
    """A process that runs one checkout, and answers in lines of JSON."""

    def __init__(self, folder: Path, backend: str) -> None:
        environment = os.environ | {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
        command = [sys.executable, __file__, "--serve", backend]
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **question: Any) -> Any:
        """One answer. Raises EOFError if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise EOFError("a checkout has ended; its messages stand above")
        return json.loads(line)


def serve(backend: str) -> None:
    """Answers questions: digests of results, or seconds."""
    import numpy as np
    from PIL import Image

    from waifu2x import Upscaler, Waifu2xError

    if backend == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    clock = time.process_time if backend == "cpu" else time.perf_counter
    opened: dict[tuple[Any, ...], Any] = {}

    def upscaler(question: dict[str, Any]) -> Any:
        key = tuple(question[name] for name in ("model", "scale", "noise", "precision", "tile"))
        if key not in opened:
            for each in opened.values():
                each.close()
            opened.clear()
            model, scale, noise, precision, tile = key
            opened[key] = Upscaler(
                scale, noise, model=model, backend=backend, precision=precision, tile=tile
            )
        return opened[key]

    for line in sys.stdin:
        question = json.loads(line)
        picture = np.asarray(Image.open(question["picture"]).convert("RGB"))
        *count, height, width = question["shape"]
        crop = np.resize(picture, (height, width, 3))
        pixels = np.stack([np.roll(crop, n * 7, 0) for n in range(count[0])]) if count else crop
        if question["floats"]:
            pixels = pixels.astype(np.float32) / 255
        try:
            network = upscaler(question)
            start = clock()
            result = network(np.ascontiguousarray(pixels))
            seconds = clock() - start
        except Waifu2xError as error:
            print(json.dumps({"error": str(error)}), flush=True)
            continue
        answer = {"seconds": seconds, "digest": sha256(result.tobytes()).hexdigest()}
        print(json.dumps(answer), flush=True)


def sets(folder: Path) -> list[dict[str, Any]]:
    """The model sets that a checkout has installed: name, noise levels and scales of each."""
    found = subprocess.run(
        [sys.executable, "-m", "waifu2x", "models", "list", "--json"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [each for each in json.loads(found.stdout) if each["folder"]]


def roles(models: dict[str, Any], few: bool) -> list[tuple[int, int | None]]:
    """Scale and noise level of each request that runs another model of a set."""
    noise = models["noise_levels"]
    found: list[tuple[int, int | None]] = [(scale, None) for scale in models["scales"] if scale > 1]
    found += [(scale, level) for scale in models["scales"] for level in noise]
    return found[:1] + found[-1:] if few else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--models", nargs="*", help="sets; all that are installed if not given")
    parser.add_argument("--precisions", nargs="*", default=_PRECISIONS)
    parser.add_argument("--roles", choices=("all", "few"), default="all")
    parser.add_argument("--timed", nargs="*", default=("vgg_7/art", "cunet/art"))
    parser.add_argument("--size", default="480x270", help="of the input that is timed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    if arguments.before is None or arguments.after is None:
        parser.error("two checkouts are needed")
    folders = (arguments.before.resolve(), arguments.after.resolve())
    checkouts = [Checkout(folder, arguments.backend) for folder in folders]
    asked = same = 0
    for models in sets(folders[0]):
        if arguments.models is not None and models["name"] not in arguments.models:
            continue
        for number, (scale, noise) in enumerate(roles(models, arguments.roles == "few")):
            for precision in arguments.precisions:
                for kind, crop in _CROPS.items():
                    if number > 1 and kind != "whole":
                        continue
                    tile = crop[2] if kind == "tiles" else None
                    question = {
                        "model": models["name"],
                        "scale": scale,
                        "noise": noise,
                        "precision": precision,
                        "tile": tile,
                        "shape": crop if kind == "stack" else crop[:2],
                        "floats": kind == "whole",
                        "picture": str(_EXAMPLES / ("photo.jpg" if number % 2 else "drawn.png")),
                    }
                    answers = [checkout.ask(**question) for checkout in checkouts]
                    if all("error" in answer for answer in answers):
                        break
                    asked += 1
                    if answers[0].get("digest") == answers[1].get("digest"):
                        same += 1
                    else:
                        what = f"{models['name']} {scale}x noise {noise} {precision} {kind}"
                        print(f"{what}: DIFFERENT {answers}", flush=True)
        print(f"{models['name']}: {same} of {asked} the same so far", flush=True)
    width, height = (int(side) for side in arguments.size.split("x"))
    for name in arguments.timed:
        for precision in arguments.precisions:
            question = {"model": name, "scale": 2, "noise": None, "precision": precision}
            question |= {"tile": None, "shape": [height, width], "floats": False}
            question["picture"] = str(_EXAMPLES / "drawn.png")
            rounds = [[c.ask(**question) for c in checkouts] for _ in range(arguments.rounds + 1)]
            if any("error" in answer for answer in rounds[0]):
                continue
            asked += 1
            same += len({answer["digest"] for answer in rounds[0]}) == 1
            before, after = ([pair[n]["seconds"] for pair in rounds[1:]] for n in (0, 1))
            ratio = statistics.median(b / a for a, b in zip(before, after, strict=True))
            print(
                f"{name} {precision} {arguments.size}: {min(before) * 1000:.1f} ms before,"
                f" {min(after) * 1000:.1f} after; median ratio of pairs {ratio:.3f};"
                f" {'same bits' if same == asked else 'DIFFERENT bits in some run so far'}",
                flush=True,
            )
    sys.exit(same < asked)


if __name__ == "__main__":
    main()
