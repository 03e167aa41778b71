"""The server: socket, TLS, signals, and the chain of applications."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from waifu2x.errors import OutputError
from waifu2x.serve.app import Api
from waifu2x.serve.connections import Connection, Connections, Patience
from waifu2x.serve.limits import HEADER_SECONDS, IDLE_SECONDS
from waifu2x.serve.security import Access, Guard, bracketed
from waifu2x.serve.service import Service
from waifu2x.system.files import reason, remove_unfinished
from waifu2x.system.lazy_dataclass import dataclass

_ENDING_SECONDS = 2
"""How long responses under way may take when the server ends."""
_BACKLOG = 512
_HEADER_BYTES = 1 << 16
"""The most bytes of a request's header."""


@dataclass(frozen=True)
class Binding:
    """The address that a server listens at."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 for any free one."""
    certfile: Path | None = None
    keyfile: Path | None = None

    @property
    def is_local(self) -> bool:
        """Returns whether only this machine can reach it."""
        return self.host in ("127.0.0.1", "localhost", "::1")


def bound(binding: Binding) -> socket.socket:
    """Opens a listening socket. Raises OutputError if the port is taken, say."""
    try:
        found = socket.getaddrinfo(
            binding.host, binding.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        opened = socket.socket(family, kind, protocol)
        try:
            if sys.platform != "win32":  # Windows would let others take the port
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(_BACKLOG)
        except BaseException:
            opened.close()
            raise
    except OSError as error:
        raise OutputError(
            f"{binding.host}:{binding.port}: cannot listen here: {reason(error)}",
            "choose another --port or --host",
        ) from error
    return opened


def address_of(listening: socket.socket, binding: Binding) -> str:
    """Returns the address of the page, without its token."""
    scheme = "http" if binding.certfile is None else "https"
    host = "127.0.0.1" if binding.host in ("0.0.0.0", "::") else binding.host
    return f"{scheme}://{bracketed(host)}:{listening.getsockname()[1]}/"


def serve(
    service: Service,
    listening: socket.socket,
    binding: Binding,
    token: str,
    on_ready: Callable[[], None],
) -> None:
    """Answers requests until SIGINT or SIGTERM; a second one ends the program at once.

    Only for the main thread. `on_ready` is called once the server answers. Raises OutputError for
    an unusable certificate.
    """
    access = Access.of(
        _names(binding.host),
        listening.getsockname()[1],
        token,
        is_tls=binding.certfile is not None,
    )
    registry = Connections(access)
    protocol = type("_Connection", (Connection,), {"registry": registry})
    app = Guard(Patience(Api(service).app(), registry), access)
    # uvicorn's messages are for its developers, and strangers could flood a terminal with them.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
    config = uvicorn.Config(
        app,
        http=protocol,
        loop="asyncio",  # `startup` relies on it
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(IDLE_SECONDS),
        timeout_graceful_shutdown=_ENDING_SECONDS,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        ssl_certfile=binding.certfile,
        ssl_keyfile=binding.keyfile,
    )
    try:
        config.load()
    except OSError as error:
        raise OutputError(
            f"{binding.certfile}: cannot be used for TLS: {reason(error)}",
            "give a certificate and its key in PEM by --certfile and --keyfile",
        ) from error
    _raise_file_limit()
    _Server(config, service, on_ready).run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn's server with this program's handling of signals."""

    def __init__(
        self, config: uvicorn.Config, service: Service, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.is_ssl:
            # uvicorn has no option for it, and asyncio gives clients a minute.
            loop = asyncio.get_running_loop()
            made = functools.partial(loop.create_server, ssl_handshake_timeout=HEADER_SECONDS)
            loop.create_server = made  # type: ignore[method-assign]
        await super().startup(sockets)
        self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        names = ("SIGINT", "SIGTERM", "SIGBREAK", "SIGHUP")
        numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        before: dict[Any, Any] = {one: signal.signal(one, self.handle_exit) for one in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            remove_unfinished()
            os._exit(128 + sig)
        self.should_exit = True


def _names(host: str) -> list[str]:
    """Returns the names by which others reach `host`: all names of the machine if it is open to
    all."""
    if host not in ("0.0.0.0", "::"):
        return [host]
    found = {socket.gethostname(), socket.getfqdn()}
    with suppress(OSError):
        for _, _, _, _, address in socket.getaddrinfo(socket.gethostname(), None):
            found.add(str(address[0]).partition("%")[0])
    found |= {f"{name}.local" for name in list(found) if "." not in name and ":" not in name}
    # The address that packets to other machines leave from; nothing is sent.
    for family, other in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((other, 9))
            found.add(str(probe.getsockname()[0]).partition("%")[0])
    return sorted(found)


def _raise_file_limit() -> None:
    """Raises this process's limit of open files, as far as the system allows."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
