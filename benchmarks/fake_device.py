"""A CUDA device that computes nothing: what the host does around kernels is left to measure."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helpers.fake_cuda import FakeLibrary
from waifu2x.backends.cuda.compilers import cached
from waifu2x.backends.cuda.compilers.nvcc import Nvcc
from waifu2x.backends.cuda.driver import by_ctypes, graph
from waifu2x.backends.cuda.driver import library as driver_library
from waifu2x.system import cache


@contextmanager
def in_place_of_the_driver(library: FakeLibrary) -> Iterator[None]:
    """A library in the place of NVIDIA's, a compiler that compiles nothing, an empty cache."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        for module in (graph, by_ctypes, driver_library):
            patch.setattr(module, "library", lambda: library)
        patch.setitem(sys.modules, "pycuda", None)
        patch.setattr(cached, "_compile", lambda name, *rest: name.encode())
        patch.setattr(cached, "find", lambda version: Nvcc("nvcc"))
        patch.setenv(cache.DIRECTORY_VARIABLE, folder)
        yield
