"""Engines and upscalers as objects: how they show themselves, closing, pickling, forks."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import waifu2x
from waifu2x import BackendError, Engine, Upscaler

PIXELS = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"scale": 1.5, "noise": 1}, "vgg_7/art: scale 1.5, noise 1, on numpy"),
        ({"width": 40}, "vgg_7/art: width 40, on numpy"),
        ({"width": 40, "height": 30, "fit": "cover"}, "vgg_7/art: 40x30 cover, on numpy"),
        ({"min_size": (40, 30)}, "vgg_7/art: at least 40x30, on numpy"),
        (
            {"longer_side": 99, "only_smaller_than": 80},
            "vgg_7/art: longer side 99, only smaller than 80, on numpy",
        ),
    ],
)
def test_upscalers_show_what_they_do(arguments: Any, text: str) -> None:
    with Upscaler(model="vgg_7", backend="numpy", **arguments) as upscaler:
        assert repr(upscaler) == f"<Upscaler {text}>"
    assert repr(upscaler) == f"<Upscaler {text.replace('on numpy', 'closed')}>"


def test_engines_show_what_they_compute_with() -> None:
    with Engine("numpy") as engine:
        assert repr(engine) == "<Engine numpy: NumPy, auto, 0 networks>"
        with Upscaler(2, model="vgg_7", engine=engine):
            assert repr(engine) == "<Engine numpy: NumPy, auto, 1 network>"
    assert repr(engine) == "<Engine numpy, closed>"
    engine.close()


def test_lists_show_themselves() -> None:
    device = waifu2x.list_devices("numpy")[0]
    assert repr(device).startswith("DeviceInfo(backend='numpy', number=0, name='NumPy', detail=")
    model = next(model for model in waifu2x.list_models() if model.name == "vgg_7/art")
    assert repr(model).startswith("ModelInfo(name='vgg_7/art', noise_levels=(0, 1, 2, 3), scales=")
    assert model.installed
    for each in (device, model):
        assert pickle.loads(pickle.dumps(each)) == copy.deepcopy(each) == each


def test_what_holds_a_device_is_not_pickled() -> None:
    with Engine("numpy") as engine, Upscaler(2, model="vgg_7", engine=engine) as upscaler:
        with pytest.raises(TypeError, match="cannot pickle an Engine; make one in each process"):
            pickle.dumps(engine)
        with pytest.raises(TypeError, match="cannot pickle an Upscaler; make one in each process"):
            copy.copy(upscaler)


FORKED = """
import os, sys
import numpy as np
import waifu2x

pixels = np.arange(9 * 12 * 3, dtype=np.uint8).reshape(9, 12, 3)
with waifu2x.Upscaler(2, model="vgg_7", backend=sys.argv[1]) as upscaler:
    expected = upscaler(pixels)
    child = os.fork()
    if not child:
        try:
            for work in (upscaler, waifu2x.Upscaler):
                try:
                    if work is upscaler:
                        found = upscaler(pixels)
                    else:
                        with waifu2x.Upscaler(2, model="vgg_7", backend=sys.argv[1]) as other:
                            found = other(pixels)
                    print((found == expected).all(), flush=True)
                except waifu2x.BackendError as error:
                    print(error, flush=True)
            upscaler.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (upscaler(pixels) == expected).all()
"""


def forked(backend: str) -> list[str]:
    """Returns what a forked process reports of the inherited upscaler, and of a new one."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return done.stdout.splitlines()


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@needs_fork
def test_a_forked_process_may_use_the_processor() -> None:
    assert forked("cpu") == ["True", "True"]


@needs_fork
def test_a_forked_process_is_told_that_it_has_no_device(opencl_device: Any) -> None:
    inherited, own = forked("opencl")
    assert inherited.endswith(
        ": it was opened before this process was forked; start it with the method spawn, and"
        " open an engine there"
    )
    assert own.startswith("backend opencl cannot be used in a process that was forked after it wa")


def test_devices_are_those_of_the_command() -> None:
    devices = waifu2x.list_devices()
    assert {"cpu", "numpy"} <= {device.backend for device in devices}
    for device in devices:
        if device.backend in ("cpu", "numpy"):
            with Engine(device.backend, device.number) as engine:
                assert engine.backend.device.name == device.name
    with pytest.raises(BackendError, match="unknown backend 'metal'; choose one of cuda, opencl"):
        waifu2x.list_devices("metal")


def test_models_that_are_not_installed_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waifu2x.networks.catalogue.Package.models", lambda package: None)
    found = {model.name: model for model in waifu2x.list_models()}
    assert found["vgg_7/art"].install is None
    absent = found["cugan/se"]
    assert (absent.installed, absent.noise_levels, absent.folder) == (False, (), None)
    assert absent.install == "pip install 'waifu2x-kernels[cugan]'"
    assert next(iter(found)) == "vgg_7/art"
