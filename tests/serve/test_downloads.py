"""Addresses from which browsers save results."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.helpers.contents import encode, noise
from tests.helpers.servers import Server
from waifu2x.imaging.picture import Picture
from waifu2x.serve.connections import DOWNLOAD, Connections, Patience
from waifu2x.serve.downloads import SECONDS, Downloads, UnknownAddressError
from waifu2x.serve.security import Access


def test_an_address_works_once_and_not_for_long() -> None:
    now = [0.0]
    downloads = Downloads(lambda: now[0])
    first, second = downloads.offer(["a"]), downloads.offer(["b", "c"])
    assert len(first) >= 32
    assert downloads.take(second) == ("b", "c")
    with pytest.raises(UnknownAddressError):
        downloads.take(second)
    now[0] = SECONDS + 1
    with pytest.raises(UnknownAddressError):
        downloads.take(first)
    with pytest.raises(UnknownAddressError):
        downloads.take("guessed")


def test_only_so_many_addresses_are_kept() -> None:
    downloads = Downloads(lambda: 0.0)
    names = [downloads.offer([str(number)]) for number in range(1100)]
    assert downloads.take(names[-1]) == ("1099",)
    with pytest.raises(UnknownAddressError):
        downloads.take(names[0])


def test_downloads_need_no_token_but_an_offer_does(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        png = encode(Picture(noise(5, 4, 3)), "png")
        ids = [server.ended(server.send(f"{n}.png", png)["id"])["id"] for n in range(2)]
        one = json.dumps({"ids": ids[:1]})
        assert server.ask("POST", "/api/downloads", one, token=None).status == 401
        address = server.ask("POST", "/api/downloads", one).data["address"]
        answer = server.ask("GET", address, token=None)
        assert answer.body == server.ask("GET", f"/api/jobs/{ids[0]}/result").body
        assert answer.headers["content-disposition"].startswith("attachment")
        assert server.ask("GET", address, token=None).status == 404
        for asked in ({"ids": ids}, {"all": True}):
            address = server.ask("POST", "/api/downloads", json.dumps(asked)).data["address"]
            packed = io.BytesIO(server.ask("GET", address, token=None).body)
            with zipfile.ZipFile(packed) as archive:
                assert archive.namelist() == ["001 0-2x.png", "002 1-2x.png"]
        bad = ("", "[]", "{}", '{"ids": []}', '{"ids": [1]}', '{"ids": ["../x"]}', "[" * 100_000)
        for body in bad:
            assert server.ask("POST", "/api/downloads", body).status == 400, body[:20]
        assert server.ask("POST", "/api/downloads", '{"ids": ["0123"]}').status == 404


@pytest.mark.parametrize(("status", "stays"), [(200, True), (404, False)])
def test_a_download_may_take_longer_than_a_header(status: int, stays: bool) -> None:
    """Else the connection would be closed in its middle, and the file on the disk be cut."""

    class Connected:
        client = ("127.0.0.1", 1)
        is_timed = True

        def end_timer(self) -> None:
            self.is_timed = False

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        found.append(connected.is_timed)
        await send({"type": "http.response.body", "body": b""})

    async def give() -> Any:
        raise AssertionError("nothing is asked for")

    async def take(message: Any) -> None:
        pass

    found: list[bool] = []
    connected: Any = Connected()
    registry = Connections(Access.of([], 1, "token", is_tls=False))
    registry.add(connected)
    scope = {"type": "http", "path": f"{DOWNLOAD}name", "client": connected.client}
    asyncio.run(Patience(answered, registry)(scope, give, take))
    assert found == [not stays]
    assert registry.working == 0
