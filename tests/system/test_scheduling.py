"""Nothing that this program opens may take the machine from all others."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from waifu2x.system.machine import usual_scheduling

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these policies")


def _policies() -> set[int]:
    return {os.sched_getscheduler(int(one.name)) for one in Path("/proc/self/task").iterdir()}


def test_a_block_leaves_no_thread_otherwise_than_the_caller() -> None:
    # SCHED_BATCH may be taken without being root; a thread inherits it.
    begun, ended = threading.Event(), threading.Event()
    inherited: list[int] = []

    def wait() -> None:
        inherited.append(os.sched_getscheduler(0))
        begun.set()
        ended.wait()

    thread = threading.Thread(target=wait)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    try:
        with usual_scheduling():
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            thread.start()
            begun.wait()
        assert inherited == [os.SCHED_BATCH]
        # Other threads have their own: Mesa's, which keeps shaders on disk, that of a batch.
        for one in (0, thread.native_id):
            assert one is not None
            assert os.sched_getscheduler(one) == os.SCHED_OTHER
    finally:
        ended.set()
        thread.join()
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


_OPENED = """
from fractions import Fraction
from tests.system.test_scheduling import _policies
from tests.flows.test_film_encoders import COLOURS, SOURCE
from waifu2x.formats.film.writing.codecs import Wish, choose
from waifu2x.formats.film.writing.encode import PartEncoder, Shape
import io

before = _policies()
encoding = choose(Wish("av1", preset="10"), SOURCE, "mkv", None)
shape = Shape(encoding, 128, 192, Fraction(1, 1000), Fraction(25), None, COLOURS)
encoder = PartEncoder(io.BytesIO(), shape)
assert _policies() == before, (before, _policies())
encoder.abort()
"""


def test_an_encoder_of_av1_takes_no_real_time() -> None:
    """It does where root runs it, and elsewhere this shows nothing."""
    pytest.importorskip("av")
    # A process of its own: this one must not stay so where it fails.
    subprocess.run([sys.executable, "-c", _OPENED], check=True, cwd=Path(__file__).parents[2])
