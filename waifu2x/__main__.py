"""Where the program begins: `waifu2x`, and `python -m waifu2x`."""

from __future__ import annotations

import gc
import sys
from typing import Any

_INTERRUPTED = 130
"""The exit code after Ctrl-C, as in shells: 128 and the number of the signal."""
_OBJECTS_OF_A_START = 100_000
"""More containers than a command makes before its first picture."""
_FRAMES = 20_000
"""The size of a frame, in values: room for all nested calls, beyond a piece of 2048."""


def main() -> None:
    """Runs the `waifu2x` command and exits."""
    _collect_later()
    # Ctrl-C may come at any time, while modules are imported, too.
    try:
        _run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            # A terminal shows ^C: the word overwrites it.
            start = "\r" if sys.stderr.isatty() else ""
            sys.stderr.write(f"{start}Interrupted.\n")
        sys.exit(_INTERRUPTED)
    except MemoryError:  # before there is anything that could tell it
        if sys.stderr is not None:
            sys.stderr.write("Error: not enough memory to begin: free some memory\n")
        sys.exit(1)
    finally:
        # Python would search all objects for cycles twice before it ends, which takes a tenth of
        # a short run. The system frees them anyway.
        gc.freeze()


def _run() -> None:
    from waifu2x.backends import argv_peek

    argv_peek.begin(sys.argv[1:])
    from waifu2x import cli

    cli.main()


# CPython keeps the frames of calls in pieces of 16 KiB. A call that does not fit into the last one
# maps another, and unmaps it when it returns: a loop that calls at the end of a piece pays for that
# at each turn, and which loop it is changes with any line of code. A frame larger than a piece gets
# one with room for the calls below it, too.
_run.__code__ = _run.__code__.replace(co_stacksize=_FRAMES)


def _collect_later() -> None:
    """Delays the first garbage collection; later ones come as usual. Modules and their classes
    stay: searching them again and again while their number grows takes 4 % of a short run."""
    usual = gc.get_threshold()

    def restore(phase: str, info: dict[str, Any]) -> None:
        gc.set_threshold(*usual)
        gc.callbacks.remove(restore)

    gc.callbacks.append(restore)
    gc.set_threshold(_OBJECTS_OF_A_START)


if __name__ == "__main__":
    main()
