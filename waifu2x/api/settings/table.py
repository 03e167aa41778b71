"""The table of settings. Each option is a row, and with it each key of the settings file, keyword
argument and parameter of the page. CONTRIBUTING.md shows how to add one.

Rows of one key are for different commands. Their order is that of helps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import get_args

from waifu2x.api.settings import kinds
from waifu2x.api.settings.kinds import PIXELS, OneOf, Whole
from waifu2x.api.settings.setting import COMPUTING, FILE, IN_AND_OUT, MESSAGES, SIZE, Setting
from waifu2x.api.settings.uses import USES
from waifu2x.backends import BACKEND_NAMES, Precision
from waifu2x.formats import table
from waifu2x.formats.film import HARDWARE
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.table import Compression, Depth, Range
from waifu2x.imaging.sizes import Fit
from waifu2x.networks import catalogue
from waifu2x.system.arguments import listed

FILM_DEPTHS = ("auto", "8", "10")
FILM_FORMS = ("mkv", "webm", "y4m")
"""Values of --depth and --format that films have; others are for pictures."""

_SOFTWARE = ("x264", "x265", "av1", "vp9", "ffv1", "prores")
_CODECS = OneOf((*_SOFTWARE, *HARDWARE, "auto"), (*_SOFTWARE, "h264_nvenc", "hevc_qsv", "auto"))
_FORMATS = OneOf(
    table.WRITABLE, tuple(dict.fromkeys(table.of(each).extensions[0] for each in table.WRITABLE))
)
_COPIED = OneOf(("copy", "none"))
_COUNT = Whole(sys.maxsize)
_FILMS = "video batch"
"""Those that make films. The help of `batch` names one option for all of them."""
_DEVICES = "upscale batch video compare bench serve"
_GROUPS = {"size": "Give one size: {}."}
"""Sentences about members of groups that exclude each other, where it is not said like that."""
_OF_ONE = "it is of one run"
_KEPT = "files are replaced only where the command line itself says so"
_OF_READER = "the program that reads the output asks for it"

TABLE = (
    Setting("host", "Address to listen at; 0.0.0.0 for other machines, too.", "serve", kinds.TEXT,
        "127.0.0.1", "ADDRESS", shows_default=True),
    Setting("port", "Its port; 0 for any that is free.  [8288]", "serve", Whole(65535, "", 0),
        "8288", "N"),
    Setting("certfile", "Certificate for TLS, in PEM.", "serve", kinds.FILE, None, "FILE"),
    Setting("keyfile", "Its key, if it is not in the same file.", "serve", kinds.FILE, None,
        "FILE"),
    Setting("no-browser", "Open no browser.", "serve"),
    Setting("picture",
        "Write this PNG: crops of IN, OUT and how they differ, side by side, where they differ "
        "most. With --models, the name of its picture.  [default: IN-models.png]", "compare",
        kinds.PATH, None, "PNG", letter="o", own_name="target", one_run=_OF_ONE),
    Setting("overwrite", "Replace that PNG if it exists.", "compare", one_run=_KEPT),
    Setting("format", "Format of the result in question.", "info", _FORMATS, "png", "EXT",
        letter="f", heading=IN_AND_OUT, shows_default=True),
    Setting("json", "Print a line of JSON for each file.", "info", own_name="as_json",
        one_run=_OF_READER),
    Setting("models", "Compare what these model sets make of IN: `waifu2x models list` shows them.",
        "compare", kinds.NAMES, None, "NAME,NAME", completion="model_lists", one_run=_OF_ONE),
    Setting("reduce",
        "With --models: reduce IN first, by the scale, and measure each result against it.",
        "compare", one_run=_OF_ONE),
    Setting("input", "An input, like IN; may be repeated.", "upscale", kinds.TEXT, None, "IN",
        letter="i", own_name="inputs", heading=IN_AND_OUT, completion="pictures", repeated=True,
        one_run=_OF_ONE),
    Setting("output", "The output, like OUT, or a folder; other words are then inputs.", "upscale",
        kinds.TEXT, None, "OUT|DIR", letter="o", heading=IN_AND_OUT, completion="results",
        one_run=_OF_ONE),
    Setting("output", "Write results there, too; nothing is replaced.", "serve", kinds.PATH, None,
        "DIR", letter="o", heading=IN_AND_OUT, completion="folders", one_run=_OF_ONE),
    Setting("format", "Format, such as png or jpg; by default OUT's, or the input's.", "upscale",
        _FORMATS, None, "EXT", letter="f", heading=IN_AND_OUT, api="file",
        http="Format; as the source has it without"),
    Setting("noise", "Denoise: auto (the default: by a JPEG's quality), none, 0 to 3.",
        "upscale batch compare", kinds.NOISE, "auto", "LEVEL", letter="n", void_by="use",
        api="upscaler", http="Noise level to remove"),
    Setting("noise", "Denoise: auto (the default: 0 after a codec with loss), none, 0 to 3.",
        "video", kinds.NOISE, "auto", "LEVEL", letter="n", void_by="use"),
    Setting("scale", "Times as large: 2 (the default), 1.5, 4/3, up to 32; 1 only denoises.",
        "upscale batch video compare", kinds.SCALE, None, "NUMBER", letter="s", group="size",
        api="upscaler", http="Times as large: 2, 1.5, 4/3; up to 32"),
    Setting("model", "Model; `waifu2x models list` lists them.", "upscale batch bench", kinds.TEXT,
        catalogue.DEFAULT, "NAME|PATH", letter="m", completion="models", shows_default=True,
        group="model", void_by="use", api="upscaler",
        http="Name of a model, as /api/settings has them"),
    Setting("model", "Model; `waifu2x models list` lists them.", "video", kinds.TEXT,
        catalogue.FILM_DEFAULT, "NAME|PATH", letter="m", completion="models", shows_default=True,
        group="model", void_by="use",
        http="Name of a model for films; without it as model, if that is given"),
    Setting("best-for", "Choose the model for drawings, photos, old-films or speed.",
        "upscale batch video", OneOf(tuple(USES)), None, "USE", group="use", void_by="model",
        api="upscaler", http="Use to choose model and noise level for, where they are not given"),
    Setting("noise", "Denoise: none (the default), 0 (JPEG of quality 85-95) to 3 (strong).",
        "bench", kinds.LEVEL, "none", "LEVEL", letter="n"),
    Setting("size", "Size of the picture.", "bench", kinds.SIZE, "960x540", "WxH",
        shows_default=True),
    Setting("tune",
        "On a GPU's backend: first try how each layer is best computed on this device, and keep "
        "what is found for all later runs.", "bench", one_run=_OF_ONE),
    Setting("verify",
        "Measure nothing: compute fixed pictures, and compare the results with those of other "
        "machines, or with exact ones.", "bench", one_run=_OF_ONE),
    Setting("submit",
        "Write this machine's figures to FILE, as JSON, for comparison with others: networks, a "
        "picture, a folder, a film.", "bench", kinds.TEXT, None, "FILE", one_run=_OF_ONE),
    Setting("json", "As JSON.", "compare bench", own_name="as_json", one_run=_OF_READER),
    Setting("name", "Made of {stem} {scale} {ext} {width} {height} {model} {noise}.",
        "upscale batch", kinds.TEMPLATE, None, "TEMPLATE", own_name="template", heading=IN_AND_OUT),
    Setting("overwrite", "Replace results that exist.", "upscale batch", heading=IN_AND_OUT,
        joint=("--skip-existing", "Replace results that exist, or leave them alone."),
        group="existing", one_run=_KEPT, api="file"),
    Setting("overwrite", "Replace OUT if it exists.", "video", heading=IN_AND_OUT, one_run=_KEPT),
    Setting("skip-existing", "Leave results that exist alone.", "upscale batch", heading=IN_AND_OUT,
        group="existing"),
    Setting("width", "Width of the result in pixels; alone, it keeps the proportions.",
        "upscale batch", PIXELS, None, "PX", heading=SIZE,
        joint=("--height", "Size of the result in pixels; one alone keeps the proportions."),
        group="size", partner="height", api="upscaler", http="Width in pixels, instead of scale"),
    Setting("height", "Height of the result in pixels; alone, it keeps the proportions.",
        "upscale batch", PIXELS, None, "PX", heading=SIZE, group="size", partner="width",
        api="upscaler", http="Height in pixels, instead of scale"),
    Setting("width", "Width of the result in pixels.", "video", PIXELS, None, "PX", heading=SIZE,
        joint=("--height", "Size of the result; one alone keeps the proportions."), group="size",
        partner="height"),
    Setting("height", "Height of the result in pixels.", "video", PIXELS, None, "PX", heading=SIZE,
        group="size", partner="width"),
    Setting("fit", "With both: inside (default), cover (crops) or exact (stretches).",
        "upscale batch", OneOf(get_args(Fit)), None, "HOW", heading=SIZE, void_by="size",
        api="upscaler"),
    Setting("longer-side", "Longer side of the result in pixels.", "upscale batch video", PIXELS,
        None, "PX", heading=SIZE, joint=("--shorter-side", "One side of the result in pixels."),
        group="size", api="upscaler"),
    Setting("shorter-side", "Shorter side of the result in pixels.", "upscale batch video", PIXELS,
        None, "PX", heading=SIZE, group="size", api="upscaler"),
    Setting("min-size", "Least width and height of the result; nothing is reduced.",
        "upscale batch video", kinds.LEAST_SIZE, None, "PX|WxH", heading=SIZE, group="size",
        api="upscaler"),
    Setting("only-smaller-than", "Enlarge only pictures below this size; copy the others.",
        "upscale batch", PIXELS, None, "PX", heading=SIZE, api="upscaler"),
    Setting("max-height", "Largest height of the result, with -s or any other size.", _FILMS,
        PIXELS, None, "PX", heading=SIZE),
    Setting("quality", "jpg (95), avif, heic (90), webp, jxl, jp2 (lossless); like: as input.",
        "upscale batch", kinds.QUALITY, None, "1..100|like", letter="q", heading=FILE, api="file",
        http="1 to 100, or like: as the source"),
    Setting("compression", "Effort to make png, tif, webp and jxl small: fast, default or best.",
        "upscale batch", OneOf(get_args(Compression)), "default", "EFFORT", heading=FILE,
        api="file"),
    Setting("depth", "Bits per sample: 8, 10, 12, 16 or auto (the default: as the input has).",
        "upscale batch", OneOf(get_args(Depth)), "auto", "BITS", heading=FILE, api="file",
        http="Bits a sample"),
    Setting("to", "sdr: turn HDR (PQ, HLG) into SDR, that is sRGB, or BT.709 in films.",
        "upscale batch video", OneOf(get_args(Range)), None, "sdr", heading=FILE, api="file",
        http="sdr: HDR becomes SDR"),
    Setting("background", "Colour for formats without transparency: white, #rrggbb.",
        "upscale batch", kinds.COLOUR, None, "COLOUR", heading=FILE, api="file"),
    Setting("strip", "Drop metadata; keep the colour profile.", "upscale batch", heading=FILE,
        joint=("--copy-times", "Drop metadata, not the profile; give results the dates of inputs."),
        api="file"),
    Setting("copy-times", "Give results the dates of their inputs.", "upscale batch", heading=FILE,
        api="file"),
    Setting("audio", "Sound: copy (the default), or none.", _FILMS, _COPIED, "copy", "HOW",
        heading=IN_AND_OUT,
        joint=("--subtitles", "copy (the default: every stream as it is), or none.")),
    Setting("subtitles", "Subtitles: copy (the default), or none.", _FILMS, _COPIED, "copy", "HOW",
        heading=IN_AND_OUT),
    Setting("drop-unsupported", "Leave out streams that OUT's container cannot hold.", _FILMS,
        heading=IN_AND_OUT),
    Setting("start", "Begin there: seconds, or a time like 1:02.5.", "video", kinds.TIME, None,
        "TIME", heading=IN_AND_OUT,
        joint=("--end", "Only this part: seconds, or times like 1:02.5."), one_run=_OF_ONE),
    Setting("end", "End there.", "video", kinds.TIME, None, "TIME", heading=IN_AND_OUT,
        one_run=_OF_ONE),
    Setting("preview", "Only the frame at TIME, as a PNG beside its plain enlargement.", "video",
        kinds.TIME, None, "TIME", heading=IN_AND_OUT, one_run=_OF_ONE),
    Setting("restart", "Begin anew instead of going on with OUT.parts.", _FILMS,
        heading=IN_AND_OUT,
        joint=("--keep-parts", "Begin anew instead of going on with OUT.parts; keep OUT.parts."),
        one_run="it throws away what is done"),
    Setting("keep-parts", "Do not remove OUT.parts at the end.", _FILMS, heading=IN_AND_OUT),
    Setting("max-pixels", f"Refuse files of more pixels, all frames together.  [{MAX_PIXELS}]",
        "upscale batch serve", _COUNT, str(MAX_PIXELS), "N", heading=IN_AND_OUT, api="file"),
    Setting("max-bytes", "Refuse larger files.  [4 GiB]", "serve", _COUNT, str(4 << 30), "N",
        heading=IN_AND_OUT),
    Setting("max-queue", "Jobs that are kept; the oldest finished ones go first.  [20000]", "serve",
        Whole(10**6), "20000", "N", heading=IN_AND_OUT),
    Setting("recursive", "Include subfolders, and keep the tree.", "batch", letter="r",
        heading=IN_AND_OUT),
    Setting("format", "Format of results: png by default; pages of archives keep theirs.", "batch",
        _FORMATS, None, "EXT", letter="f", heading=IN_AND_OUT),
    Setting("shard", "Only this part of the pictures, to share them among machines.", "batch",
        kinds.SHARD, None, "N/PARTS", heading=IN_AND_OUT, one_run=_OF_ONE),
    Setting("shard", "Only this part of the film, to share it among machines.", "video",
        kinds.SHARD, None, "N/PARTS", heading=IN_AND_OUT,
        joint=("--join", "Only a part of the film, for one of several machines; join all parts."),
        one_run=_OF_ONE),
    Setting("retry-failed", "Only what failed in an earlier run, whose --json wrote FILE.", "batch",
        kinds.PATH, None, "FILE", own_name="retried", heading=IN_AND_OUT, group="arrivals",
        one_run=_OF_ONE),
    Setting("fail-fast", "Start no more files after the first failure.", "batch",
        heading=IN_AND_OUT),
    Setting("watch", "Go on with files that arrive in INPUT_DIR, until interrupted.", "batch",
        own_name="watching", heading=IN_AND_OUT, group="arrivals", one_run=_OF_ONE),
    Setting("join", "Only join the parts that --shard made on several machines.", "video",
        heading=IN_AND_OUT, one_run=_OF_ONE),
    Setting("cluster", "Use the workers of a Dask cluster; local: two processes here.",
        "batch video", kinds.ADDRESS, None, "tcp://HOST:PORT", own_name="address",
        heading=IN_AND_OUT),
    Setting("format", "Format on standard output: mkv (the default), webm or raw y4m.", "video",
        OneOf((*FILM_FORMS, *table.WRITABLE), FILM_FORMS), None, "EXT", letter="f", heading=FILE),
    Setting("codec", "x264 (8 bits), x265 (10), av1, vp9, ffv1, prores, h264_nvenc, auto ...",
        "video", _CODECS, None, "NAME", letter="c", heading=FILE, http="Encoder of films"),
    Setting("codec", "Encoder of films, which take the options of `waifu2x video`, too.", "batch",
        _CODECS, None, "NAME", letter="c", heading=FILE),
    Setting("crf", "Quality, lower is better. Default: x264 18, x265 20, av1 28.", _FILMS,
        kinds.CRF, None, "N", heading=FILE, http="Quality of films, less is better"),
    Setting("preset", "The encoder's effort: medium for x264 and x265, 8 for av1.", _FILMS,
        kinds.TEXT, None, "NAME", heading=FILE,
        joint=("--tune", "The encoder's effort (medium; av1: 8), and the kind of film.")),
    Setting("tune", "The kind of film for the encoder, such as animation.", _FILMS, kinds.TEXT,
        None, "NAME", heading=FILE, one_run=_OF_ONE),
    Setting("codec-option", "An option of the encoder, by FFmpeg's name; may be repeated.", _FILMS,
        kinds.PAIR, None, "KEY=VALUE", own_name="codec_options", heading=FILE, repeated=True,
        one_run="it is of one encoder"),
    Setting("depth", "Bits per sample: 8, 10 or auto (the default: as IN has).", "video",
        OneOf((*FILM_DEPTHS, *get_args(Depth)), FILM_DEPTHS), "auto", "VALUE", heading=FILE,
        joint=("--chroma", "8 or 10 bits; 420, 422 or 444; auto (the default: as IN has).")),
    Setting("chroma", "Chroma samples: 420, 422, 444 or auto (the default: as IN has).", _FILMS,
        OneOf(("auto", "420", "422", "444")), "auto", "VALUE", heading=FILE),
    Setting("deinterlace", "auto (the default: films marked as interlaced), off, frame or field.",
        _FILMS, OneOf(("auto", "off", "frame", "field")), "auto", "HOW", heading=FILE,
        joint=("--ivtc", "auto (the default), off, frame or field; --ivtc undoes 3:2 pulldown."),
        group="fields", http="What is made of interlaced films"),
    Setting("ivtc", "Remove the 3:2 pulldown of films in NTSC.", _FILMS, heading=FILE,
        group="fields"),
    Setting("crop", "Crop IN: auto to all but black bars, or to WxH at X, Y.", _FILMS, kinds.CROP,
        None, "auto|W:H:X:Y", heading=SIZE),
    Setting("duplicates", "Compute what stands still once: off, exact (the default) or tolerant.",
        _FILMS, OneOf(("off", "exact", "tolerant")), "exact", "HOW", heading=FILE),
    Setting("strength", "Share of the network in results, from 0 to 1; the rest is Lanczos.  [1]",
        "upscale batch video", kinds.STRENGTH, "1", "NUMBER", heading=FILE, api="upscaler",
        joint=("--mask", "The network's share, 0 to 1, and its picture; the rest is Lanczos."),
        http="Share of the network in results, 0 to 1"),
    Setting("mask", "Share of the network by pixel: a grey picture, white for all, black for none.",
        "upscale batch video", kinds.MASK, None, "FILE", heading=FILE, completion="pictures",
        one_run="it is of one picture", api="upscaler"),
    Setting("tta", "Average 8 turned and mirrored results (or 2, 4): 8 times the work.",
        "upscale batch video", Whole(among="1 2 4 8"), "1", "[2|4|8]", letter="x",
        heading=COMPUTING, completion="levels_of_tta", api="upscaler",
        http="The number of turned results in the mean"),
    Setting("backend", f"Backend: auto (the default), {listed(BACKEND_NAMES)}.", _DEVICES,
        OneOf(("auto", *BACKEND_NAMES)), "auto", "NAME", heading=COMPUTING, api="upscaler"),
    Setting("device", "Its devices; `waifu2x devices` lists them.", _DEVICES, kinds.DEVICES, "0",
        "N[,N]|all", letter="g", heading=COMPUTING, completion="devices", shows_default=True,
        api="upscaler"),
    Setting("precision", "auto (the fastest that keeps 60 dB), fp32, fp16, bf16 or int16.",
        _DEVICES, OneOf(get_args(Precision)), "auto", "MODE", heading=COMPUTING, api="upscaler"),
    Setting("tile", "Side of tiles in output pixels; never changes the result.",
        "upscale batch video", kinds.TILE, "auto", "auto|PX", letter="t", heading=COMPUTING,
        api="upscaler"),
    Setting("jobs", "Pictures read, computed and written at once, such as 1:2:1; or auto.", "batch",
        kinds.JOBS, "auto", "LOAD:PROC:SAVE", letter="j", own_name="in_flight", heading=COMPUTING),
    Setting("verbose", "Say what is used, and how long each step takes.",
        "upscale batch video serve", letter="v", heading=MESSAGES, group="volume",
        joint=("--quiet", "Say what is used and how long steps take, or only errors.")),
    Setting("quiet", "Say only errors.", "upscale batch video serve", heading=MESSAGES,
        group="volume"),
    Setting("config", "Settings file, '' for none; `waifu2x config` shows what is in force.",
        "upscale batch video compare bench info serve", kinds.TEXT, None, "FILE", heading=MESSAGES,
        completion=".toml", one_run="it names the file itself"),
    Setting("json", "Print a line of JSON for each picture on stdout.", "upscale batch",
        own_name="as_json", heading=MESSAGES, one_run=_OF_READER),
    Setting("json", "Print a line of JSON each second, and one at the end, on stdout.", "video",
        own_name="as_json", heading=MESSAGES, one_run=_OF_READER),
    Setting("report", "Write a web page with each picture before and after, and the failures.",
        "batch", kinds.PATH, None, "FILE.html", own_name="page", heading=MESSAGES,
        completion=".html", one_run=_OF_ONE),
)  # fmt: skip
HTTP = tuple(row for row in TABLE if row.http)
"""Parameters of requests for jobs."""


def of_command(command: str) -> list[Setting]:
    """Returns the settings that a command takes, in the order of helps."""
    return [row for row in TABLE if command in row.commands.split()]


def conflict(given: Iterable[Setting], dashes: str = "--") -> str | None:
    """Returns a sentence about settings that exclude each other, by names with `dashes`; None if
    there are none among those that are given."""
    members: dict[str, list[str]] = {}
    for row in given:
        pair = sorted(filter(None, (row.key, row.partner)), reverse=True)
        named = " and ".join(f"{dashes}{key}" for key in pair)
        found = members.setdefault(row.group, [])
        if row.group and named not in found:
            found.append(named)
    for group, names in members.items():
        if len(names) > 1:
            said = _GROUPS.get(group)
            return (
                said.format(" or ".join(names))
                if said
                else f"{listed(names, 'and')} exclude each other."
            )
    return None
