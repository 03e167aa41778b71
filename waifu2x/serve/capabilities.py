"""Tells the page what a server can do: models, formats, devices, limits."""

from __future__ import annotations

import functools
from typing import Any

from waifu2x import __version__
from waifu2x.api.settings.kinds import noise_word
from waifu2x.api.settings.uses import USES
from waifu2x.errors import OutputError
from waifu2x.flows.jobs import ARCHIVES_READ
from waifu2x.formats import film, table
from waifu2x.formats.film.writing.codecs import ENCODERS, is_available
from waifu2x.serve import job_settings
from waifu2x.serve.film_frames import can_read
from waifu2x.serve.jobs import fields
from waifu2x.serve.service import Service

_DEFAULT_QUALITY = {"JPEG": 95, "AVIF": 90, "HEIF": 90}
"""Default quality by format; other formats are lossless unless a quality is given."""


def capabilities(service: Service) -> dict[str, Any]:
    """Returns the answer to GET /api/settings."""
    device = service.upscalers.engine.backend.device
    limits = service.limits
    films = film.READABLE if can_read() else ()
    return {
        "version": __version__,
        "models": [_model(one, service) for one in job_settings.installed_models().values()],
        "accepts": [f".{extension}" for extension in (*table.READABLE, *ARCHIVES_READ, *films)],
        "formats": [
            _format(form) for form in table.FORMATS if form.writable and _can_be_written(form)
        ],
        "devices": [f"{service.upscalers.engine.backend.name}: {device.name}"],
        "limits": {
            "max_pixels": limits.max_pixels,
            "max_bytes": limits.max_bytes,
            "max_queue": limits.max_queue,
        },
        "output": service.output is not None,
        "video": bool(films),
        "settings": [
            {"name": row.name, "option": row.option}
            for row in job_settings.KEPT
            if not row.is_of_films
        ],
        "codecs": _codecs() if films else (),
        "uses": [
            {
                "name": name,
                "about": use.about,
                "model": use.model,
                "film_model": use.film_model,
                "noise": noise_word("auto" if use.level is None else use.level),
            }
            for name, use in USES.items()
        ],
        "defaults": fields(service.defaults),
    }


@functools.cache
def _codecs() -> tuple[str, ...]:
    """Returns the encoders of films that work on this machine; hardware is asked once."""
    return tuple(name for name in ENCODERS if is_available(name))


def _model(one: Any, service: Service) -> dict[str, Any]:
    return {
        "name": one.name,
        "title": one.name,
        "best_for": one.best_at,
        "licence": one.licence,
        "scales": list(one.scales),
        "noise_levels": list(one.noise_levels),
        "speed": service.queue.rate(one.name),
    }


def _format(form: table.Format) -> dict[str, Any]:
    quality = None
    if form.quality:
        quality = {"least": 1, "most": 100, "default": _DEFAULT_QUALITY.get(form.name)}
    return {
        "name": form.name,
        "extensions": list(form.extensions),
        "quality": quality,
        "depths": [bits for bits in form.depths if bits <= 16],
    }


def _can_be_written(form: table.Format) -> bool:
    try:
        table.check_encoder(form)
    except OutputError:
        return False
    return True
