"""Messages about films: what they hold, what is made of them and how the work on them ended."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from waifu2x.cli.output import report
from waifu2x.cli.output.progress_line import clock
from waifu2x.errors import BackendError, ModelError, OutputError, Sentence
from waifu2x.flows.film.parts.part_files import has_parts, parts_folder
from waifu2x.formats.film import WRITABLE
from waifu2x.formats.film.description import HLG, MATRICES, Film
from waifu2x.formats.film.reading.describe import is_hdr
from waifu2x.formats.film.reading.selection import Ending, Selection

if TYPE_CHECKING:
    from waifu2x.flows.batch.subset import Shard
    from waifu2x.flows.film.frames.frame_device import StageTimes
    from waifu2x.flows.film.making import MadeFilm
    from waifu2x.flows.film.request import FilmJob, PreparedFilm

_SECONDS_UP_TO, _HOUR = 90, 3600
_SCALE = 2
"""The scale that films are enlarged by unless another is asked for."""


def frame_count(film: Film) -> int | None:
    """Returns the number of frames of a film, as far as its file tells."""
    if film.pictures.frames:
        return film.pictures.frames
    return None if film.seconds is None else max(1, round(film.seconds * film.pictures.rate))


def film_line(film: Film) -> str:
    """Describes a film's pictures."""
    pictures = film.pictures
    rate = f"{float(pictures.rate):.5g} frames a second"
    parts = [film.container.partition(",")[0]]
    parts.append(f"{pictures.codec} {pictures.width}x{pictures.height}, {_samples(film)}, {rate}")
    count = frame_count(film)
    if count is not None:
        parts.append(f"{'' if pictures.frames else 'about '}{report.frames(count)}")
    if film.seconds is not None:
        parts.append(clock(film.seconds))
    if pictures.interlaced:
        parts.append("interlaced")
    if any(pictures.crop):
        parts.append("cropped from {}x{}".format(*pictures.coded_size))
    if pictures.rotation:
        parts.append(f"turned by {pictures.rotation} degrees when shown")
    return ", ".join(parts)


def _samples(film: Film) -> str:
    pixels = film.pictures.pixels
    if pixels.is_rgb:
        kind = "RGB"
    elif pixels.planes < 3:
        kind = "grey"
    else:
        kind = ":".join(pixels.chroma)
    alpha = " with transparency" if pixels.planes == 4 else ""
    return f"{pixels.bits}-bit {kind}{alpha}"


def colours_line(film: Film) -> str:
    """Describes the meaning of a film's codes, and which of it is assumed."""
    colours, pixels = film.pictures.colours, film.pictures.pixels
    parts = {"matrix": MATRICES[colours.matrix], "range": f"{colours.range} range"}
    if pixels.planes >= 3 and (pixels.columns, pixels.rows) != (1, 1):
        parts["siting"] = f"chroma {colours.siting}"
    if is_hdr(colours):
        parts["transfer"] = "HLG" if colours.transfer == HLG else "PQ"
    told = [text for kind, text in parts.items() if kind not in colours.assumed]
    assumed = [text for kind, text in parts.items() if kind in colours.assumed]
    groups = [", ".join(told)] if told else []
    if assumed:
        of = " from the height" if "matrix" in colours.assumed else ""
        groups.append(f"{', '.join(assumed)} (assumed{of}: the file does not say)")
    return "; ".join(groups)


def streams_line(film: Film, taken: frozenset[int]) -> str:
    """Lists the streams besides pictures whose numbers are in `taken`; empty without any."""
    titles = [stream.title for stream in film.others if stream.index in taken]
    if film.chapters:
        titles.append(f"{film.chapters} chapters")
    return ", ".join(titles)


def result_line(prepared: PreparedFilm) -> str:
    """Describes how the result is coded."""
    shape = prepared.shape
    options = dict(shape.encoding.options)
    told = [
        f"{name} {options[name]}"
        for name in ("crf", "cq", "preset", "cpu-used", "profile", "tune")
        if name in options
    ]
    how = f" ({', '.join(told)})" if told else ""
    height, width = shape.written
    return f"{width}x{height}, {shape.encoding.codec}{how}, {shape.encoding.pixels.name}"


_INTERLACED = {
    "off": Sentence(
        "it is interlaced, and its combs are kept", "use --deinterlace frame to remove them"
    ),
    "ivtc": Sentence("it is interlaced, and its pulldown is undone"),
    **dict.fromkeys(
        ("frame", "field"),
        Sentence("it is interlaced, and is deinterlaced", "use --deinterlace off to keep it"),
    ),
}


def warnings(name: str, film: Film, prepared: PreparedFilm) -> Iterator[Sentence]:
    """Yields warnings to be shown before the work; `name` stands for the film."""
    yield from (Sentence(notice).of(name) for notice in prepared.notices)
    if is_hdr(prepared.shape.colours):
        yield Sentence(
            f"{name}: HDR is kept, although the models were trained on SDR",
            "look at a frame first, with --preview, or use --to sdr",
        )
    yield from (Sentence(f"{name}: no encoder here keeps {lost}") for lost in film.pictures.lost)
    if film.pictures.interlaced:
        yield _INTERLACED[prepared.selection.deinterlacing].of(name)
    if told := fields_line(prepared):
        yield told.of(name)


def fields_line(prepared: PreparedFilm) -> Sentence | None:
    """Describes combs or pulldown that nothing cures, and the option that does."""
    fields, how = prepared.fields, prepared.selection.deinterlacing
    if fields.is_telecined and how != "ivtc":
        return Sentence("it looks like film with pulldown", "use --ivtc to restore its pictures")
    if fields.order is not None and how == "off":
        return Sentence(
            "it has combs, although it does not say that it is interlaced",
            "use --deinterlace frame to remove them",
        )
    return None


def damage(film: Film, selection: Selection, made: MadeFilm) -> list[str]:
    """Lists what could not be read of the selected stretch of a film, each a clause."""
    ending, found = made.ending, []
    read = float(ending.seconds - selection.start - sum(gap.length for gap in ending.gaps))
    ends = [float(end) for end in (film.seconds, selection.end) if end is not None]
    claimed = min(ends, default=0.0) - float(selection.start)
    of = f" of {claimed:.2f} s" if claimed > read else ""  # joined recordings are longer
    what = f"{report.frames(made.frames)}, {max(read, 0.0):.2f} s{of}"
    if ending.is_short:
        found.append(f"the input ends early ({what})")
    if ending.damaged:
        places = "1 place is" if ending.damaged == 1 else f"{ending.damaged} places are"
        found.append(f"{places} damaged" + ("" if ending.is_short else f" ({what} could be read)"))
    found += [
        f"no pictures from {float(gap.start):.2f} to {float(gap.start + gap.length):.2f} s"
        for gap in ending.gaps
    ]
    return [*found, *made.lost]


def moved(ending: Ending) -> str:
    """Describes the frames whose times were corrected; empty without any."""
    if not ending.moved:
        return ""
    have = "has" if ending.moved == 1 else "have"
    return f"{report.frames(ending.moved)} {have} the time of another: shown a tick later"


def changes(film: Film, prepared: PreparedFilm, ending: Ending) -> Iterator[Sentence]:
    """Yields a sentence for each change of the pictures within a film."""
    own = f"{film.pictures.width}x{film.pictures.height}"
    for change in ending.changes:
        seconds = f"{float(change.pts * prepared.shape.tick):.6g}"
        if change.to:
            told = f"from {seconds} s its pictures are {change.to}, and are made {own}"
            way = f"use --start {seconds} for a film of their size" if film.seekable else ""
            yield Sentence(told, way)
        else:
            yield Sentence(f"from {seconds} s its pictures are {own} again")


def done_line(target: Path, prepared: PreparedFilm, made: MadeFilm, seconds: float) -> str:
    """Describes how a film was made."""
    shape = prepared.shape
    held = made.frames - made.resumed - made.computed
    parts = [report.frames(made.frames)]
    if made.resumed:
        parts[0] += f" ({made.resumed} were there)"
    if held > 0:
        parts.append(f"{made.computed} computed, {held} held")
    height, width = shape.written
    parts += [f"{width}x{height}", f"{seconds:.1f} s"]
    return f"{report.place(target)}: {', '.join(parts)}"


def resumed_line(target: Path, frames: int, film: Film) -> Sentence:
    """Announces that a run goes on with the frames of an earlier one."""
    count = frame_count(film)
    of = "" if count is None else f" of {max(count, frames)}"
    return Sentence(
        f"{target}: going on with {frames}{of} frames in {parts_folder(target)}",
        "use --restart to begin anew",
    )


class FinishedFilm(NamedTuple):
    """A film that was made, and what it took."""

    job: FilmJob
    prepared: PreparedFilm
    film: Film
    made: MadeFilm
    times: StageTimes
    seconds: float
    """On the clock."""

    def damage(self) -> list[str]:
        """Lists what could not be read, each a clause."""
        return damage(self.film, self.prepared.selection, self.made)

    def notices(self) -> Iterator[str]:
        """Yields sentences about what was made otherwise than its source."""
        yield from (f"{self.job.target}: {notice}" for notice in self.made.notices)
        for clause in changes(self.film, self.prepared, self.made.ending):
            yield f"{self.job.source}: {clause}"
        if line := moved(self.made.ending):
            yield f"{self.job.source}: {line}"

    def details(self) -> Iterator[str]:
        """Yields the seconds of each stage, and how the film was made."""
        times = self.times
        yield (
            f"at work: decoding {times.decoding:.2f} s, network {times.network:.2f} s, encoding"
            f" {times.encoding:.2f} s"
        )
        yield done_line(self.job.target, self.prepared, self.made, self.seconds)

    def document(self) -> dict[str, Any]:
        """Returns all of it for programs."""
        found, made, shape = self.damage(), self.made, self.prepared.shape
        return {
            "status": "damaged" if found else "done",
            "input": str(self.job.source),
            "output": str(self.job.target),
            "width": shape.written[1],
            "height": shape.written[0],
            "codec": shape.encoding.codec,
            "frames": made.frames,
            "resumed": made.resumed,
            "computed": made.computed,
            "held": made.frames - made.resumed - made.computed,
            "moved": made.ending.moved,
            "changes": list(changes(self.film, self.prepared, made.ending)),
            "damage": found,
            "seconds": round(self.seconds, 3),
            "stages": {
                name: round(spent, 3)
                for name, spent in self.times._asdict().items()
                if name != "elapsed"
            },
            "slowest": self.times.slowest,
        }


def tell_end(finished: FinishedFilm, *, as_json: bool) -> bool:
    """Reports a finished film; returns False if part of its source could not be read."""
    found = finished.damage()
    for clause in found:
        report.error(f"{finished.job.source}: {clause}")
    for notice in finished.notices():
        report.tell(notice)
    at_work, line = finished.details()
    report.detail(at_work)
    report.say(line)
    if as_json:
        report.show(json.dumps(finished.document()))
    return not found


def tell_shard(job: FilmJob, shard: Shard, parts: int, *, as_json: bool) -> None:
    """Tells how many parts of a shard are made."""
    folder = parts_folder(job.target)
    report.say(
        Sentence(
            f"{folder}: {parts} parts of shard {shard.number} of {shard.parts} are complete",
            f"use --join to make {job.target} of all",
        )
    )
    if as_json:
        document = {
            "status": "done",
            "input": str(job.source),
            "output": str(folder),
            "shard": f"{shard.number}/{shard.parts}",
            "parts": parts,
        }
        report.show(json.dumps(document))


class Interrupted:
    """Tells once, when a signal ends the work, how to go on."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._is_told = False

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tells it if the block is interrupted."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            self.tell()
            raise

    def tell(self) -> None:
        """Tells which parts are kept, and the command that goes on."""
        folder = parts_folder(self._target)
        if self._is_told or not has_parts(folder):
            return
        self._is_told = True
        words = [word for word in sys.argv[1:] if word != "--restart"]
        again = shlex.join(["waifu2x", *words])
        report.error(Sentence(f"{folder}: what is done is kept", f"go on by `{again}`"))


def of_film(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Describes a film, what each container would keep of it, and how long the work takes here.

    Returns a document for programs, and lines for people. Raises ImageError, and UnavailableError
    where PyAV is missing.
    """
    # Late: only `info` needs them.
    from waifu2x.flows.film.reading.client import FilmReader
    from waifu2x.flows.film.request import FilmJob, prepare

    with FilmReader(path) as reader:
        film, pictures = reader.film, reader.film.pictures
        height, width = pictures.height * _SCALE, pictures.width * _SCALE
        document: dict[str, Any] = {
            "format": film.container,
            "codec": pictures.codec,
            "width": pictures.width,
            "height": pictures.height,
            "rate": float(pictures.rate),
            "frames": frame_count(film),
            "seconds": film.seconds,
            "streams": [stream.title for stream in film.others],
            "chapters": film.chapters,
            "enlarged": [width, height],
        }
        every = frozenset(stream.index for stream in film.others)
        lines = [
            film_line(film),
            f"colours: {colours_line(film)}",
            f"other streams: {streams_line(film, every) or 'none'}",
            f"enlarged {_SCALE}x: {width}x{height}",
        ]
        if pictures.lost:
            document["lost"] = list(pictures.lost)
            lines.append(f"no container here keeps {', '.join(pictures.lost)}")
        sizes = reader.sizes() if film.seekable else ()
        if len(sizes) > 1:
            document["sizes"] = [list(size) for size in sizes]
            told = [f"{one.width}x{one.height} from {one.seconds:.6g} s" for one in sizes]
            lines.append(f"its pictures change: {', '.join(told)}; all are made as the first")
        some: PreparedFilm | None = None
        document["containers"] = {}
        for container in WRITABLE:
            job = FilmJob(path, path.with_suffix(f".{container}"), drop_unsupported=True)
            try:
                prepared = prepare(reader, job, height, width)
            except OutputError as error:
                document["containers"][container] = {"error": str(error)}
                lines.append(f"as {container}: cannot write it: {error}")
                continue
            some = some or prepared
            found = list(prepared.notices)
            document["containers"][container] = {
                "codec": prepared.shape.encoding.codec,
                "lost": found,
            }
            lines.append(f"as {container}: {', '.join(found) or 'everything is kept'}")
        if some is not None and (combs := fields_line(some)):
            document["fields"] = combs
            lines.append(combs)
        if some is not None:
            more, line = _time(film, some)
            document |= more
            lines.append(line)
    return document, lines


def _time(film: Film, prepared: PreparedFilm) -> tuple[dict[str, Any], str]:
    from waifu2x.flows.film import automatic
    from waifu2x.flows.film.trials import measured
    from waifu2x.networks import catalogue, model_set

    model = catalogue.FILM_DEFAULT
    try:
        noise = automatic.noise_level(film.pictures, model_set.find(model))
        arguments = {"scale": _SCALE, "noise": noise, "model": model}
        found = measured(arguments, film, prepared.shape)
    except (BackendError, ModelError) as error:
        return {"network": {"error": str(error)}}, f"the time it takes is unknown: {error}"
    frames = frame_count(film)
    document: dict[str, Any] = {"device": found.device, "rate": round(found.frames, 3)}
    rate = (
        f"{found.frames:.3g} frames a second"
        if found.frames >= 1
        else f"{1 / found.frames:.1f} s a frame"
    )
    where = f"{model} on {_device(found.device)}, measured on {found.width}x{found.height} pixels"
    taken = f"{rate} here"
    if frames is not None:
        seconds = frames / found.frames
        document["seconds"] = round(seconds, 1)
        taken = f"about {_duration(seconds)} here, {rate}"
    return {"network": document}, f"{taken} ({where}), without decoding and encoding"


def _duration(seconds: float) -> str:
    if seconds < _SECONDS_UP_TO:
        return f"{max(1, round(seconds))} s"
    return f"{clock(seconds)} {'min' if round(seconds) < _HOUR else 'h'}"


def _device(name: str) -> str:
    """Returns a device for people, by the name of a backend and the device's own."""
    backend, _, own = name.partition(": ")
    return "the CPU" if backend in ("cpu", "numpy") else own
