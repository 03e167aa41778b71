"""Peeks at the command line, to start slow work early and set what imports read.

A wrong guess costs only time: the code that needs the work does it again, and raises its errors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def begin(words: list[str]) -> None:
    """Begins the work that a command line, without the program's name, is likely to need."""
    backend = _value(words, "--backend") or os.environ.get("WAIFU2X_BACKEND") or "auto"
    if backend != "numpy":
        # NumPy's library for matrices starts a thread for each core when it is imported. All of
        # them wait busily for a tenth of a second, and only the numpy backend needs them.
        os.environ.setdefault(_BLAS_THREADS, "1")
    asks = {"-h", "--help", "--version"} & set(words)
    # Without a command, `upscale` runs; names of other commands are letters only.
    upscales = words[:1] == ["upscale"] or (words and not words[0].isalpha())
    if upscales and not asks and backend in ("auto", "cuda"):
        device = _value(words, "-g", "--device") or os.environ.get("WAIFU2X_DEVICE", "") or "0"
        first, *others = device.split(",")
        number = int(first) if first.isdecimal() else 0
        from waifu2x.backends.cuda.driver import library

        # With "auto", OpenCL may take the place of CUDA, and would count the devices that it sees.
        if first.isdecimal() and not others and (backend == "cuda" or number == 0):
            library.show_only(number)
        library.retain_context(number)


def _value(words: Sequence[str], *names: str) -> str:
    """Returns the word after one of these options, or behind its `=`; empty without them."""
    for at, word in enumerate(words):
        for name in names:
            if word == name and at + 1 < len(words):
                return words[at + 1]
            if word.startswith(f"{name}="):
                return word[len(name) + 1 :]
    return ""
