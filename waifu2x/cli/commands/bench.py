"""`waifu2x bench`."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from waifu2x.backends import open_backend
from waifu2x.cli.command import Command
from waifu2x.cli.options.settings import takes_settings
from waifu2x.cli.output.report import show, tell
from waifu2x.errors import OutputError
from waifu2x.networks import catalogue, model_set
from waifu2x.system.files import reason, write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from waifu2x.backends import Precision
    from waifu2x.flows.known_results import Judgement

_LEAST_PIXELS = 200 * 200
"""The least pixels of a picture whose time predicts that of larger ones."""


@click.command(cls=Command, short_help="Measure this machine, layer by layer.")
@takes_settings("bench")
def bench(
    model: str,
    noise: str,
    size: tuple[int, int],
    tune: bool,
    verify: bool,
    submit: str | None,
    as_json: bool,
    **computing: Any,
) -> None:
    """Measure this machine: each layer, the whole network, the whole program, at twice the size.

    \b
    waifu2x bench                 the default model
    waifu2x bench -m upconv_7     another one, and the default's time beside it
    waifu2x bench --verify        does this machine compute right?
    waifu2x bench --submit FILE   figures to compare with those of other machines

    GFLOP/s are effective: they count a convolution's multiply-adds by its definition, also where
    Winograd's algorithm does with a fifth. The share of the peak counts what is done; the peak is
    what the unit reaches on data in its nearest cache, measured now.
    """
    backend, device, precision = (computing[name] for name in ("backend", "device", "precision"))
    if len(device) > 1:
        raise click.UsageError("Measure one --device at a time.")
    if verify:
        _verify(model, backend, device[0], precision, as_json)
        return
    if submit is not None:
        _submit(Path(submit), backend, device[0], precision, size)
        return
    import numpy as np  # late: helps need not wait for it

    width, height = size
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    *_, network = model_set.find(model).models(2, None if noise == "none" else int(noise))
    opened = open_backend(backend, device[0], tell)
    planes = np.concatenate([pixels] * network.frames, axis=-1)[..., : network.in_planes].copy()
    if tune:
        for trial in opened.tune(network, precision, planes):
            tell(f"{trial.layer:12} {trial.seconds * 1e3:8.3f} ms  {trial.option}")
    measured = opened.measure(network, precision, planes)
    opened.close()
    call = ["--backend", opened.name, "--device", str(device[0]), "--precision", precision]
    program = _program_seconds(pixels, [*call, "-m", model, "-n", noise], runs=3)
    estimates: dict[str, float] = {}
    if width * height >= _LEAST_PIXELS:
        estimates[model] = _full_hd_seconds(pixels, program, [*call, "-m", model, "-n", noise])
    if estimates and model_set.find(model).name != catalogue.DEFAULT:
        usual = [*call, "-m", catalogue.DEFAULT, "-n", noise]
        seconds = _program_seconds(pixels, usual, runs=2)
        estimates[catalogue.DEFAULT] = _full_hd_seconds(pixels, seconds, usual)
    rows = [
        {
            "layer": layer.name,
            "ms": layer.seconds * 1e3,
            "gflops": 2 * layer.multiply_adds / layer.seconds / 1e9 if layer.seconds else 0.0,
            "share_of_peak": layer.share_of_peak,
            "peak_gflops": 2 * layer.peak / 1e9 if math.isfinite(layer.peak) else None,
        }
        for layer in measured.layers
    ]
    made = height * width * network.scale**2
    gflops = 2 * network.multiply_adds * made / measured.seconds / 1e9
    if as_json:
        document = {
            "backend": opened.name,
            "device": opened.device.name,
            "detail": opened.device.detail,
            "size": [width, height],
            "layers": rows,
            "network": {"ms": measured.seconds * 1e3, "gflops": gflops},
            "program": {"ms": program * 1e3},
            "seconds_of_1080p": estimates,
        }
        show(json.dumps(document, indent=2))
        return
    show(f"{opened.name}: {opened.device.name}, {opened.device.detail}")
    large = f"{width * network.scale}x{height * network.scale}"
    show(f"{model}: {width}x{height} -> {large}, {precision}")
    wide = max(len("whole network"), *(len(layer.name) for layer in measured.layers))
    show(f"{'layer':{wide}} {'ms':>8} {'GFLOP/s':>8} {'of peak':>8} {'peak':>7}")
    for layer, row in zip(measured.layers, rows, strict=True):
        if not layer.multiply_adds:
            show(f"{layer.name:{wide}} {row['ms']:8.1f}")
            continue
        line = f"{layer.name:{wide}} {row['ms']:8.1f} {row['gflops']:8.0f}"
        if row["peak_gflops"] is not None:
            line += f" {row['share_of_peak']:8.0%} {row['peak_gflops']:7.0f}"
        show(line)
    show(f"{'whole network':{wide}} {measured.seconds * 1e3:8.1f} {gflops:8.0f}")
    show(f"{'whole program':{wide}} {program * 1e3:8.1f}")
    takes = [f"{_text(seconds)} with {name}" for name, seconds in estimates.items()]
    if takes:
        show(f"a 1080p picture (1920x1080 to 3840x2160) takes about {', '.join(takes)}")


def _text(seconds: float) -> str:
    return f"{seconds:.{0 if seconds >= 10 else 1 if seconds >= 1 else 2}f} s"


def _full_hd_seconds(pixels: NDArray[Any], seconds: float, options: list[str]) -> float:
    """Estimates the program's seconds for a picture of 1920 x 1080 from this one's: its start, and
    work in proportion to the pixels."""
    start = min(seconds, _program_seconds(pixels[:16, :16], options, runs=1))
    own, least = (math.prod(each.shape[:2]) for each in (pixels, pixels[:16, :16]))
    return start + (seconds - start) * (1920 * 1080 - least) / (own - least)


def _program_seconds(pixels: NDArray[Any], options: list[str], *, runs: int) -> float:
    """Measures `waifu2x upscale` on a PNG file as a process; returns the least seconds of some
    runs."""
    from waifu2x.cli.figures import least_seconds
    from waifu2x.formats.write import write_picture
    from waifu2x.imaging.picture import Picture

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.png", Path(folder) / "out.png"
        write_picture(Picture(pixels), source, "png")
        words = ["upscale", "--overwrite", "-s", "2", *options, str(source), str(target)]
        return least_seconds(words, runs)


def _submit(
    path: Path, backend: str, device: int, precision: Precision, size: tuple[int, int]
) -> None:
    """Writes this machine's figures into a new file."""
    context = click.get_current_context()
    for name in ("model", "noise", "tune", "as_json"):
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--submit takes no --{name.removeprefix('as_')}.")
    taken = OutputError(f"{path} exists", "choose another name")
    if path.exists():
        raise taken
    from waifu2x.cli import figures

    found = figures.measure(backend, device, precision, size, tell)
    text = json.dumps(found, indent=2) + "\n"
    try:
        write_atomically(path, text.encode(), replace=False)
    except FileExistsError:
        raise taken from None
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({reason(error)})") from error
    show(f"{path}: read it, then send it to whom you like")


def _verify(model: str, backend: str, device: int, precision: Precision, as_json: bool) -> None:
    """Compares the results of fixed pictures with known ones, shows what was found, and ends with
    status 1 if any is wrong."""
    from waifu2x.backends.engine.engine import Engine
    from waifu2x.flows import known_results

    context = click.get_current_context()
    given = {
        name
        for name in context.params
        if context.get_parameter_source(name) != ParameterSource.DEFAULT
    }
    for name in ("noise", "size", "tune"):
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--verify takes no --{name}.")
    modes = (precision,) if "precision" in given else tuple(known_results.PROMISED)
    shipped = [each.name for each in model_set.available() if model_set.is_shipped(each.name)]
    known = known_results.read()
    found: list[Judgement] = []
    with ExitStack() as held:
        engines = [
            held.enter_context(Engine(backend, device, mode, fallback=False)) for mode in modes
        ]
        opened = engines[0].backend
        kind = known_results.kind_of(opened)
        if not as_json:
            show(f"{opened.name}: {opened.device.name}, {opened.device.detail}")
        for name in [model] if "model" in given else shipped:
            judged = list(known_results.judged(name, engines, known, every="model" in given))
            found += judged
            for mode in () if as_json else modes:
                show(_judgement_line([each for each in judged if each.mode == mode], kind))
    if as_json:
        document = {
            "backend": opened.name,
            "device": opened.device.name,
            "kind": kind,
            "right": all(each.is_right for each in found),
            "results": [_judgement_json(each) for each in found],
        }
        show(json.dumps(document, indent=2))
    else:
        show(_conclusion(found, kind))
    if not all(each.is_right for each in found):
        context.exit(1)


def _judgement_line(judged: Sequence[Judgement], kind: str) -> str:
    """Describes what the networks of one set make in one mode."""
    first = judged[0]
    model, *_, arithmetic = first.key
    same = [each for each in judged if each.distance is None]
    line = f"{model:22}  {first.mode:4}  {arithmetic:5}  "
    if same:
        kinds = same[0].same_as
        count = "" if len(same) == len(judged) else f" ({len(same)} of {len(judged)} networks)"
        line += f"same bits as {kind if kind in kinds else kinds[0]}{count}"
    far = [each.distance for each in judged if each.distance is not None]
    if far:
        psnr, levels = min(each.psnr for each in far), max(each.levels for each in far)
        line += f"{', others ' if same else ''}{psnr:.1f} dB, off by {levels:.2f} levels at most"
    wrong = [each for each in judged if not each.is_right]
    return line + (f": WRONG: {', '.join(each.key[2] for each in wrong)}" if wrong else "")


def _conclusion(found: Sequence[Judgement], kind: str) -> str:
    """Says in a sentence or two whether the results are right."""
    wrong = [each for each in found if not each.is_right]
    if wrong:
        return (
            f"Wrong: {len(wrong)} of {len(found)} results break the promise of 60 dB by auto or"
            " 100 dB by fp32. Use another --backend, and report this with --json."
        )
    same = sum(each.distance is None for each in found)
    text = f"Right: of {len(found)} results {same} have the bits that other machines make"
    if same < len(found):
        text += f", {len(found) - same} lie as near to exact ones as promised"
    if other := sum(each.is_of_known_kind and each.distance is not None for each in found):
        text += f". {other} have other bits than {kind} made before: report it with --json"
    return f"{text}."


def _judgement_json(judgement: Judgement) -> dict[str, object]:
    model, files, network, arithmetic = judgement.key
    distance = judgement.distance
    return {
        "model": model,
        "files": files,
        "network": network,
        "mode": judgement.mode,
        "arithmetic": arithmetic,
        "digest": judgement.digest,
        "same_bits_as": list(judgement.same_as),
        "psnr": None if distance is None else distance.psnr,
        "levels": None if distance is None else distance.levels,
        "right": judgement.is_right,
    }
