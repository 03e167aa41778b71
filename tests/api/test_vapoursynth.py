"""The filter for VapourSynth: its frames are those of `waifu2x video`, and of `waifu2x.upscale`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

vs = pytest.importorskip("vapoursynth", reason="pip install vapoursynth")

import waifu2x  # noqa: E402
from waifu2x.cli import cli  # noqa: E402
from waifu2x.errors import ImageError, ModelError  # noqa: E402
from waifu2x.vapoursynth import upscale  # noqa: E402

HEIGHT, WIDTH, FRAMES = 18, 26, 3
OPTIONS: dict[str, Any] = {"model": "vgg_7", "backend": "numpy", "precision": "fp32"}
Frames = Sequence[Sequence[NDArray[Any]]]


def drawn(form: int, height: int = HEIGHT, width: int = WIDTH) -> Frames:
    """Planes of each frame, of all values that the format has."""
    random = np.random.default_rng(form)
    found = vs.core.get_video_format(form)
    chroma = (height >> found.subsampling_h, width >> found.subsampling_w)
    shapes = [(height, width), chroma, chroma][: found.num_planes]
    if found.sample_type == vs.FLOAT:
        return [[random.random(shape, np.float32) for shape in shapes] for _ in range(FRAMES)]
    dtype = np.uint8 if found.bits_per_sample == 8 else np.uint16
    top = 1 << found.bits_per_sample
    return [[random.integers(0, top, shape, dtype) for shape in shapes] for _ in range(FRAMES)]


def clip_of(form: int, frames: Frames, **props: int) -> Any:
    height, width = frames[0][0].shape
    empty = vs.core.std.BlankClip(
        width=width, height=height, format=form, length=len(frames), keep=True
    )

    def filled(n: int, f: Any) -> Any:
        made = f.copy()
        for plane, samples in enumerate(frames[n]):
            np.asarray(made[plane])[...] = samples
        return made

    made = empty.std.ModifyFrame(empty, filled)
    return made.std.SetFrameProps(**props) if props else made


def planes(frame: Any) -> list[NDArray[Any]]:
    return [np.asarray(frame[plane]).copy() for plane in range(frame.format.num_planes)]


@pytest.mark.parametrize(
    ("form", "pixels", "tags"),
    [
        ("YUV420P8", "yuv420p", (1, 1)),
        ("YUV420P10", "yuv420p10le", (9, 1)),
        ("YUV422P8", "yuv422p", (6, 2)),
        ("YUV444P10", "yuv444p10le", (1, 1)),
    ],
)
def test_frames_are_those_of_films(
    form: str, pixels: str, tags: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    av = pytest.importorskip("av")
    monkeypatch.chdir(tmp_path)
    frames = drawn(getattr(vs, form))
    with av.open("a.mkv", "w") as out:
        video = out.add_stream("ffv1", rate=25)
        context = video.codec_context
        context.height, context.width, context.pix_fmt = HEIGHT, WIDTH, pixels
        context.colorspace, context.color_range = tags
        for number, each in enumerate(frames):
            frame = av.VideoFrame(WIDTH, HEIGHT, pixels)
            for plane, samples in zip(frame.planes, each, strict=True):
                rows = np.frombuffer(plane, samples.dtype).reshape(plane.height, -1)
                rows[:, : samples.shape[1]] = samples
            frame.pts = number
            out.mux(video.encode(frame))
        out.mux(video.encode())
    words = ["-n", "none", "-m", "vgg_7", "--backend", "numpy", "--precision", "fp32"]
    result = CliRunner().invoke(cli, ["video", *words, "-c", "ffv1", "a.mkv", "b.mkv"])
    assert result.exit_code == 0, result.output
    made = upscale(
        clip_of(getattr(vs, form), frames, _Matrix=tags[0], _Range=tags[1] - 1), **OPTIONS
    )
    assert (made.width, made.height, made.num_frames) == (2 * WIDTH, 2 * HEIGHT, FRAMES)
    with av.open("b.mkv") as film:
        for ours, theirs in zip(made.frames(prefetch=3), film.decode(video=0), strict=True):
            for one, other in zip(planes(ours), theirs.planes, strict=True):
                rows = np.frombuffer(other, one.dtype).reshape(other.height, -1)
                np.testing.assert_array_equal(one, rows[:, : other.width])


@pytest.mark.parametrize("form", ["RGB24", "RGB48", "RGBS", "GRAYS"])
def test_rgb_and_floats_are_pictures(form: str) -> None:
    frames = drawn(getattr(vs, form))
    made = upscale(clip_of(getattr(vs, form), frames), 1.5, **OPTIONS)
    for number in (1, 0):
        expected = waifu2x.upscale(np.stack(frames[number], axis=-1), 1.5, None, **OPTIONS)
        found = np.stack(planes(made.get_frame(number)), axis=-1)
        assert found.dtype == expected.dtype
        peak = 1 if found.dtype == np.float32 else np.iinfo(found.dtype).max
        # Samples of films are rounded half up.
        tolerance = 1e-6 if peak == 1 else 1
        assert np.abs(found.astype(float) - expected).max() <= tolerance


def test_properties_stay_and_say_what_samples_mean() -> None:
    frames = drawn(vs.YUV420P8)
    told = {"_Matrix": 6, "_Range": 1, "_ChromaLocation": 1, "_SARNum": 4, "_SARDen": 3}
    one = upscale(clip_of(vs.YUV420P8, frames, **told), **OPTIONS).get_frame(0)
    assert {name: int(one.props[name]) for name in told} == told
    other = upscale(clip_of(vs.YUV420P8, frames), **OPTIONS).get_frame(0)
    assert (planes(one)[1] != planes(other)[1]).any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        clip = clip_of(vs.YUV420P8, frames, _Matrix=6, _ColorRange=0, _ChromaLocation=1)
    older = upscale(clip, **OPTIONS)
    for mine, his in zip(planes(one), planes(older.get_frame(0)), strict=True):
        np.testing.assert_array_equal(mine, his)


def test_options_are_those_of_an_upscaler() -> None:
    clip = clip_of(vs.RGB24, drawn(vs.RGB24))
    made = upscale(clip, width=40, height=40, fit="exact", strength=0.5, **OPTIONS)
    assert (made.width, made.height) == (40, 40)
    assert made.get_frame(2).format.name == "RGB24"
    with pytest.raises(ModelError, match="nothing_like_it"):
        upscale(clip, model="nothing_like_it")
    with pytest.raises(ValueError, match="strength"):
        upscale(clip, strength=2, **OPTIONS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: vs.core.std.BlankClip(format=vs.YUV444PS), "YUV444PS is not supported; convert"),
        (lambda: vs.core.std.BlankClip(format=vs.YUV410P8), "YUV410P8 is not supported; convert"),
        (lambda: vs.core.std.BlankClip(format=vs.GRAY32), "Gray32 is not supported; convert"),
        (lambda: clip_of(vs.YUV444P8, drawn(vs.YUV444P8), _Matrix=8), "its matrix, number 8"),
        (lambda: vs.core.std.Splice(
            [vs.core.std.BlankClip(width=16), vs.core.std.BlankClip(width=18)], mismatch=True
         ), "its format or size changes"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_a_sentence(make: Any, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        upscale(make(), **OPTIONS)


def test_sides_that_the_format_does_not_have() -> None:
    clip = clip_of(vs.YUV420P8, drawn(vs.YUV420P8))
    with pytest.raises(ImageError, match="YUV420P8 has no frames of 39x27; choose an even size"):
        upscale(clip, 1.5, **OPTIONS)
    assert upscale(clip, width=40, height=28, fit="exact", **OPTIONS).get_frame(0).width == 40
