"""Runs a fuzz target with Atheris, which `pip install atheris` brings.

    python -m tests.fuzz.run TARGET [FOLDER] [-max_total_time=60] [other options of libFuzzer]

The corpus is where it begins. New inputs go to FOLDER, if it is given, never into the corpus. An
input that is no refusal is written to the working folder as `crash-...`: mend the fault, and put
the input, as small as it can be made (`-minimize_crash=1 -runs=100000`), into the corpus under a
name that begins with `found`.
"""

from __future__ import annotations

import sys
import warnings

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

with atheris.instrument_imports(include=["waifu2x"]):
    from tests.fuzz.targets import TARGETS, corpus


def main(arguments: list[str]) -> None:
    if len(arguments) < 2 or arguments[1] not in TARGETS:
        sys.exit(f"Expected a target: {', '.join(TARGETS)}")
    program, name, *rest = arguments
    target, folder = TARGETS[name], corpus(name)
    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=["waifu2x"]):
        for path in folder.iterdir():  # imports what is imported when it is needed
            target(path.read_bytes())
    # libFuzzer writes into the first folder.
    own = [each for each in rest if not each.startswith("-")]
    seeds = [f"-seed_inputs={','.join(map(str, sorted(folder.iterdir())))}"]
    options = [each for each in rest if each.startswith("-")]
    atheris.Setup([program, *own, *seeds, "-rss_limit_mb=4096", *options], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
