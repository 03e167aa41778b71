"""Access control: hosts, the token, origins, and the headers of every response.

A page on localhost is reachable by every site that a browser visits, and by every program of every
user of the machine.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Iterable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from waifu2x.system.lazy_dataclass import dataclass

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
"""Headers of every response."""
_SAFE = ("GET", "HEAD")
API = "/api/"


@dataclass(frozen=True)
class Access:
    """The hosts, the origins and the token that requests must show."""

    hosts: frozenset[str]
    """Values of the header Host, in lower case."""
    origins: frozenset[str]
    """Values of the header Origin."""
    token: str

    @classmethod
    def of(cls, names: Iterable[str], port: int, token: str, *, is_tls: bool) -> Access:
        """Returns the access by these names of the machine, and by its local ones."""
        scheme, usual = ("https", 443) if is_tls else ("http", 80)
        hosts = set[str]()
        for name in ("127.0.0.1", "localhost", "::1", *names):
            shown = bracketed(name.lower())
            hosts.add(f"{shown}:{port}")
            if port == usual:
                hosts.add(shown)
        return cls(frozenset(hosts), frozenset(f"{scheme}://{host}" for host in hosts), token)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Returns status and sentence for a request to be refused; None if it is allowed."""
        host = _only(scope, "host")
        if host is None or host.lower() not in self.hosts:
            return 421, "This server does not answer under that name: use the address it printed."
        if not scope["path"].startswith(API):
            return None
        if not self._has_token(scope):
            return 401, "The token is missing or wrong: use the whole address that was printed."
        site, origin = _only(scope, "sec-fetch-site"), _only(scope, "origin")
        if site is not None and site != "same-origin":
            return 403, "Requests of other sites are refused."
        if origin is not None and origin not in self.origins:
            return 403, "Requests of other sites are refused."
        # Browsers always send the origin of a change.
        if scope["method"] not in _SAFE and site is not None and origin is None:
            return 403, "Requests without an origin are refused."
        return None

    def _has_token(self, scope: Scope) -> bool:
        sent = _only(scope, "authorization") or ""
        kind, _, secret = sent.partition(" ")
        same = hmac.compare_digest(secret.strip().encode(), self.token.encode())
        return same and kind.lower() == "bearer"


def _only(scope: Scope, name: str) -> str | None:
    """Returns a header's value; None without one. Two of a name count as a wrong value."""
    found = [value for each, value in scope["headers"] if each == name.encode()]
    return "two of them" if len(found) > 1 else found[0].decode("latin-1") if found else None


def bracketed(name: str) -> str:
    """Returns a host's name as it stands in addresses: IPv6 in brackets."""
    try:
        return f"[{name}]" if ipaddress.ip_address(name).version == 6 else name
    except ValueError:
        return name


class Guard:
    """Wraps an application: refuses requests that `Access` does not allow."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_api = scope["path"].startswith(API)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(message, is_api)
            await send(message)

        refusal = self._access.refusal(scope)
        if refusal is not None:
            await refuse(guarded, *refusal)
        else:
            await self._app(scope, receive, guarded)


def _add_headers(message: MutableMapping[str, Any], is_api: bool) -> None:
    headers = list(message.get("headers", []))
    there = {name.lower() for name, _ in headers}
    headers += [pair for pair in HEADERS if pair[0] not in there]
    if b"cache-control" not in there:
        headers.append((b"cache-control", b"no-store" if is_api else b"no-cache"))
    if is_api and b"content-disposition" not in there:
        # Opened in a window, a response is a file, never a page.
        headers.append((b"content-disposition", b"attachment"))
    message["headers"] = headers


async def refuse(send: Send, status: int, sentence: str) -> None:
    """Answers with an error, and closes the connection: the rest of the request is not read."""
    body = json.dumps({"error": sentence}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
