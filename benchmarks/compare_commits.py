"""Two checkouts of this project against each other: the same bits, and in how much time?

    git worktree add ../before COMMIT
    python benchmarks/compare_commits.py ../before . [--backend cpu] [--size 480x270] [--rounds 5]

Each checkout runs in a process of its own, and the two take turns, so that drift of the machine's
speed meets them alike. Every precision that both have is compared, on the shipped pictures, doubled
and denoised by vgg_7. Times are of processor time for `cpu`, on one core, which other programs
disturb least, and of the clock for GPUs. Ends with 1 if a bit differs.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

_PRECISIONS = ("fp32", "bf16", "fp16", "auto")
_MODELS = ((2, None), (1, 1), (2, 3))


class Checkout:
    """A process that runs one checkout, and answers in lines of JSON."""

    def __init__(self, folder: Path, backend: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(folder)}
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
            raise EOFError("a checkout has ended; see above")
        return json.loads(line)


def serve(name: str) -> None:
    """Answers: digests of results, or seconds. The seam of either side of the change to whole
    pictures."""
    import numpy as np
    from PIL import Image

    from waifu2x.backends import open_backend
    from waifu2x.errors import BackendError
    from waifu2x.networks import model_set

    if name == "cpu":
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    backend = open_backend(name)
    clock = time.process_time if name == "cpu" else time.perf_counter
    networks: dict[tuple[Any, ...], Callable[[Any, type], Any]] = {}

    def network(precision: str, scale: int, noise: int | None) -> Callable[[Any, type], Any]:
        key = (precision, scale, noise)
        if key not in networks:
            made: Any = backend.compile(model_set.find("vgg_7/art").models(scale, noise), precision)  # type: ignore[arg-type]
            if "box" in inspect.signature(made.__call__).parameters:
                from waifu2x.lowering.box import Box

                def run(pixels: Any, dtype: type) -> Any:
                    box = Box(0, 0, pixels.shape[0] * scale, pixels.shape[1] * scale)
                    return made(pixels, box, dtype, lambda part: None)

                networks[key] = run
            else:
                networks[key] = made
        return networks[key]

    for line in sys.stdin:
        question = json.loads(line)
        try:
            run = network(question["precision"], question["scale"], question["noise"])
        except BackendError as error:
            print(json.dumps({"error": str(error)}), flush=True)
            continue
        pixels = np.asarray(Image.open(question["picture"]).convert("RGB"))
        width, height = question["size"]
        pixels = np.ascontiguousarray(np.resize(pixels[:height, :width], (height, width, 3)))
        start = clock()
        result = run(pixels, np.float32)
        seconds = clock() - start
        answer = {"seconds": seconds, "digest": sha256(result.tobytes()).hexdigest()}
        print(json.dumps(answer), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("--backend", default="cpu")
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
    examples = Path(__file__).resolve().parent.parent / "examples"
    size = [int(side) for side in arguments.size.split("x")]
    different = 0
    for precision in _PRECISIONS:
        for scale, noise in _MODELS:
            question = {"precision": precision, "scale": scale, "noise": noise, "size": [161, 107]}
            for picture in ("drawn.png", "photo.jpg"):
                question["picture"] = str(examples / picture)
                answers = [checkout.ask(**question) for checkout in checkouts]
                if any("error" in answer for answer in answers):
                    break
                different += answers[0]["digest"] != answers[1]["digest"]
                same = "same" if answers[0]["digest"] == answers[1]["digest"] else "DIFFERENT"
                print(f"{precision} {scale}x noise {noise} {picture}: {same}")
        question = {"precision": precision, "scale": 2, "noise": None, "size": size}
        question["picture"] = str(examples / "drawn.png")
        rounds = [[c.ask(**question) for c in checkouts] for _ in range(arguments.rounds + 1)]
        if any("error" in answer for answer in rounds[0]):
            continue
        before, after = ([pair[n]["seconds"] for pair in rounds[1:]] for n in (0, 1))
        ratio = statistics.median(b / a for a, b in zip(before, after, strict=True))
        print(
            f"{precision} {arguments.size}: {min(before) * 1000:.1f} ms before,"
            f" {min(after) * 1000:.1f} after; median ratio of pairs {ratio:.3f}"
        )
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
