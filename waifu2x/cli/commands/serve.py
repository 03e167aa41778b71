"""`waifu2x serve`."""

from __future__ import annotations

import threading
import webbrowser
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from waifu2x.cli.command import Command
from waifu2x.cli.options.arguments import check_folder
from waifu2x.cli.options.settings import takes_settings
from waifu2x.cli.output import report
from waifu2x.errors import NotInstalledError

_LIMITS = ("max_pixels", "max_bytes", "max_queue")
_INSTALL = "pip install 'waifu2x-kernels[serve]'"


@click.command(cls=Command, short_help="Open a page on this machine to drop pictures on.")
@takes_settings("serve")
def serve(
    host: str,
    port: int,
    certfile: Path | None,
    keyfile: Path | None,
    no_browser: bool,
    output: Path | None,
    **options: Any,
) -> None:
    """Open a page on this machine: drop pictures on it, compare models, download results.

    \b
    waifu2x serve                     opens the browser; Ctrl-C ends it
    waifu2x serve -o large/           results are written into large/, too
    waifu2x serve --host 0.0.0.0      for other machines, who need the printed address

    Pictures stay on this machine. The queue is there again at the next start.
    """
    if keyfile is not None and certfile is None:
        raise click.UsageError("--keyfile needs --certfile.")
    if output is not None:
        check_folder(output)
    # Late: helps need not wait for it, and it may be missing.
    try:
        from waifu2x.serve import server
    except ImportError as error:
        raise NotInstalledError(f"serve needs {error.name}", f"run `{_INSTALL}`") from error
    from waifu2x.serve.limits import ServiceLimits
    from waifu2x.serve.service import Service
    from waifu2x.serve.spool import server_folder

    binding = server.Binding(host, port, certfile, keyfile)
    limits = ServiceLimits(**{name: options.pop(name) for name in _LIMITS})
    with (
        closing(server.bound(binding)) as listening,
        Service(server_folder(), limits, options, output) as service,
    ):
        for notice in service.upscalers.engine.notices:
            report.tell(notice)
        token = service.spool.token()
        address = f"{server.address_of(listening, binding)}#{token}"
        service.start()

        def ready() -> None:
            if not binding.is_local:
                report.tell(_reachable(host, is_tls=certfile is not None))
            report.show(address)
            if not no_browser:
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        server.serve(service, listening, binding, token, ready)


def _reachable(host: str, *, is_tls: bool) -> str:
    told = f"{host}: other machines can reach this page, and use it with the whole address below"
    return (
        told
        if is_tls
        else f"{told}, and anybody who listens on the network sees it; use --certfile"
    )
