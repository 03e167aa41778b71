"""Work that a short run avoids: page faults of calls, and the search for garbage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]


def run_as_command(probe: str) -> list[str]:
    """Returns the lines that `probe` prints in place of all commands; its `end` runs at the end."""
    code = f"""
import atexit, gc, sys
import waifu2x.cli
from waifu2x.__main__ import main
{probe}
waifu2x.cli.main = command
atexit.register(end)
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="counts Linux's page faults")
def test_calls_at_every_depth_take_no_new_memory() -> None:
    """A loop of calls faults at no depth, wherever pieces of the stack of frames end."""
    probe = """
import resource

def called(): pass
called.__code__ = called.__code__.replace(co_stacksize=100)  # longer than that of `at`

def at(depth):
    if depth:
        return at(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(500):
        called()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def command():
    at(400)
    print(max(map(at, range(400))))

def end(): pass
"""
    (most,) = run_as_command(probe)
    assert int(most) < 50


def test_garbage_is_collected_from_the_first_picture_on() -> None:
    """Nothing is collected while modules are imported; then as Python does it."""
    probe = """
usual = gc.get_threshold()

class Link: pass

def command():
    print(gc.get_threshold() == usual)
    made = [[] for _ in range(200_000)]
    print(gc.get_threshold() == usual, len(gc.callbacks))
    link = Link()
    link.self = link
    import weakref
    seen = weakref.ref(link)
    del link
    more = [[] for _ in range(100_000)]
    print(seen() is None)

def end():
    print(gc.get_freeze_count() > 200)
"""
    assert run_as_command(probe) == ["False", "True 0", "True", "True"]


@pytest.mark.parametrize("words", [["--help"], ["upscale", "-m", "vgg_7", "in.png", "out.png"]])
def test_a_short_run_searches_for_no_garbage(words: list[str], tmp_path: Path) -> None:
    code = f"""
import atexit, gc, sys
sys.argv = ["waifu2x", *{words!r}]
from waifu2x.__main__ import main
begun = []
gc.callbacks.append(lambda phase, info: begun.append(phase))
atexit.register(lambda: print("searches:", len(begun)))
main()
"""
    drawn = ROOT / "examples" / "drawn.png"
    (tmp_path / "in.png").write_bytes(drawn.read_bytes())
    run = [sys.executable, "-c", code]
    subprocess.run(run, check=True, cwd=tmp_path, capture_output=True)
    (tmp_path / "out.png").unlink(missing_ok=True)
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "searches: 0"


@pytest.mark.parametrize("words", ["--help", "upscale --backend numpy -m vgg_7 in.png out.png"])
def test_nobody_who_opens_no_page_loads_its_server(words: str, tmp_path: Path) -> None:
    code = f"""
import atexit, sys
sys.argv = ["waifu2x", *{words.split()!r}]
from waifu2x.__main__ import main
atexit.register(lambda: print("\\n", *sys.modules))
main()
"""
    Image.new("RGB", (8, 6)).save(tmp_path / "in.png")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "waifu2x.cli" in loaded
    assert not loaded & {"waifu2x.cli.commands.serve", "starlette", "uvicorn"}
    assert not [name for name in loaded if name.startswith("waifu2x.serve")]
