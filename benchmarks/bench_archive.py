"""Archives: pages a second of one CBZ through `waifu2x batch`, against the same pages in a folder.

    python -m benchmarks.bench_archive [--pages 300] [--size 960x540] [--rounds 3] [-- OPTIONS]

Folder and archive take turns; the best round of each counts. Arguments behind -- go to
`waifu2x batch` as they are. Both results are compared, file by file.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from benchmarks.bench_folder import make_folder


def archive(folder: Path, path: Path) -> None:
    """The files of a folder, stored in an archive."""
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as book:
        for page in sorted(folder.iterdir()):
            book.write(page, page.name)


def seconds(source: Path, target: Path, options: list[str]) -> float:
    """How long `waifu2x batch` takes."""
    shutil.rmtree(target, ignore_errors=True)
    start = time.perf_counter()
    command = [sys.executable, "-m", "waifu2x", "batch", *options, str(source), str(target)]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Prints pages a second of both, and their ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--size", default="960x540")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    with tempfile.TemporaryDirectory() as place:
        folder, books, *out = (Path(place) / name for name in ("in", "books", "out", "read"))
        make_folder(folder, arguments.pages, (width, height))
        archive(folder, books / "book.cbz")
        figures: dict[str, list[float]] = {"folder": [], "archive": []}
        for _ in range(arguments.rounds):
            figures["folder"].append(seconds(folder, out[0], arguments.options))
            figures["archive"].append(seconds(books, out[1], arguments.options))
        with zipfile.ZipFile(out[1] / "book.cbz") as book:
            for name in book.namelist():
                if book.read(name) != (out[0] / name).read_bytes():
                    raise SystemExit(f"{name}: another result in the archive")
    best = {name: min(found) for name, found in figures.items()}
    for name, found in best.items():
        print(f"{name:8} {arguments.pages / found:8.2f} pages/s")
    print(f"the archive takes {best['archive'] / best['folder']:.3f} of the folder's time")


if __name__ == "__main__":
    main()
