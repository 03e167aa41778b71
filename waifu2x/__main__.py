"""Where the program begins: `waifu2x`, and `python -m waifu2x`."""

from __future__ import annotations

import sys

_INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""


def main() -> None:
    """Runs the `waifu2x` command and exits."""
    # Ctrl-C may come at any time, while modules are imported, too.
    try:
        from waifu2x.backends import early

        early.begin(sys.argv[1:])
        from waifu2x import cli

        cli.main()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            # A terminal shows ^C for the keys: the word takes its place.
            start = "\r" if sys.stderr.isatty() else ""
            sys.stderr.write(f"{start}Interrupted.\n")
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
