"""Tells what people should know of a film, in the words of `waifu2x video`."""

from __future__ import annotations

from waifu2x.cli.film import messages
from waifu2x.errors import Sentence
from waifu2x.flows.film.making import MadeFilm
from waifu2x.flows.film.request import PreparedFilm
from waifu2x.formats.film.description import Film
from waifu2x.serve.jobs import Remarks, few


def before(name: str, film: Film, prepared: PreparedFilm, container: str) -> Remarks:
    """Returns what is known before the work on a film called `name`. `container` is the extension
    that its result was to have."""
    notices = list(messages.warnings(name, film, prepared))
    refused = dict(prepared.plan.refused)
    sounds = [stream.index for stream in film.others if stream.kind == "audio"]
    lost: list[str] = []
    if sounds and all(index in refused for index in sounds):
        lost = [f"{name}: {refused[index]} is left out" for index in sounds]
        notices = [one for one in notices if one not in lost]
        lost.append(f"{name}: the result has no sound, since no container here holds it")
    if prepared.plan.container != container:
        own = prepared.plan.container
        notices.insert(0, Sentence(f"{name}: .{container} cannot hold all of it: made as .{own}"))
    return Remarks(few(lost), few(notices))


def after(name: str, film: Film, prepared: PreparedFilm, made: MadeFilm, known: Remarks) -> Remarks:
    """Returns what was `known` before, with what the work has shown."""
    lost = messages.damage(film, prepared.selection, made)
    found: list[str] = [*made.notices, *messages.changes(film, prepared, made.ending)]
    if moved := messages.moved(made.ending):
        found.append(moved)
    return Remarks(
        few([*known.lost, *(Sentence(clause).of(name) for clause in lost)]),
        few([*known.notices, *(Sentence(clause).of(name) for clause in found)]),
    )
