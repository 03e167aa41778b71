"""Attacks by other sites, other programs and hostile files on a running server: they change
nothing."""

from __future__ import annotations

import io
import os
import socket
import stat
import struct
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers.contents import encode, noise
from tests.helpers.servers import Answer, Server, until
from waifu2x.imaging.picture import Picture

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

PNG = encode(Picture(noise(6, 5, 3)), "png")
HTML = b"<!DOCTYPE html><script>alert(1)</script>"
MOST_BYTES = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Runs a server with small limits. It must survive all attacks, and write nothing outside its
    folder."""
    folder, output = tmp_path_factory.mktemp("server"), tmp_path_factory.mktemp("output")
    beside = set(tmp_path_factory.getbasetemp().iterdir())
    options = ["--max-bytes", str(MOST_BYTES), "--output", str(output), "--max-pixels", "40000"]
    with Server(folder, *options) as running:
        yield running
        assert running.ended(running.send("last.png", PNG)["id"])["state"] == "done"
        assert running.process.poll() is None
    assert set(tmp_path_factory.getbasetemp().iterdir()) == beside
    assert all(path.is_file() and path.parent == output for path in output.rglob("*"))


def changes(server: Server, headers: dict[str, str], token: str | None = "") -> list[Answer]:
    """Returns the answers to all requests that would change something."""
    return [
        server.ask("POST", "/api/jobs?name=x.png", PNG, headers, token=token),
        server.ask("POST", "/api/upscale?name=x.png", PNG, headers, token=token),
        server.ask("POST", "/api/jobs/0123456789abcdef/cancel", b"", headers, token=token),
        server.ask("DELETE", "/api/jobs/0123456789abcdef", None, headers, token=token),
        server.ask("POST", "/api/jobs/remove", b'{"all": true}', headers, token=token),
    ]


def own(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def statuses(answers: list[Answer]) -> set[int]:
    return {answer.status for answer in answers}


def test_a_page_on_another_port_of_the_same_host(server: Server) -> None:
    """Its cookies would come along, its token does not; with the token it is refused as well."""
    for headers in (
        {"Origin": f"http://127.0.0.1:{server.port + 1}", "Sec-Fetch-Site": "same-site"},
        {"Origin": f"http://127.0.0.1:{server.port + 1}"},
    ):
        assert statuses(changes(server, headers)) == {403}
        assert statuses(changes(server, headers, None)) == {401}
        answer = server.ask("GET", "/api/jobs", None, headers)
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
    answer = server.ask("OPTIONS", "/api/jobs", None, {"Origin": "http://evil.example"}, token=None)
    assert answer.status == 401
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_rebinding(server: Server) -> None:
    for host in (
        f"evil.example:{server.port}",
        "127.0.0.1",
        f"127.0.0.1:{server.port + 1}",
        f"127.0.0.1.evil.example:{server.port}",
        f"localhost.:{server.port}",
        "",
    ):
        headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert statuses(changes(server, headers)) == {421}
        assert server.ask("GET", "/", None, {"Host": host}, token=None).status == 421
    assert server.ask("GET", "/api/jobs", None, {"Host": f"LOCALHOST:{server.port}"}).status == 200


def test_a_forged_post(server: Server) -> None:
    """As a form or a script of another site sends it, which has no token."""
    forged = {"Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site"}
    assert statuses(changes(server, {**forged, "Origin": "http://evil.example"}, None)) == {401}
    assert statuses(changes(server, {**forged, "Origin": "http://evil.example"})) == {403}
    assert statuses(changes(server, forged)) == {403}


def test_an_origin_of_null(server: Server) -> None:
    """As a sandboxed frame sends it; and none at all, from a browser."""
    assert statuses(changes(server, {"Origin": "null"})) == {403}
    assert statuses(changes(server, {"Origin": "null", "Sec-Fetch-Site": "same-origin"})) == {403}
    assert statuses(changes(server, {"Sec-Fetch-Site": "same-origin"})) == {403}
    assert statuses(changes(server, {"Sec-Fetch-Site": "none"})) == {403}


def test_the_page_itself_may(server: Server) -> None:
    headers = {"Origin": own(server), "Sec-Fetch-Site": "same-origin"}
    assert server.ask("POST", "/api/jobs?name=x.png", PNG, headers).status == 201


@pytest.mark.parametrize("path", ["/api/jobs", "/api/settings", "/api/none"])
def test_a_missing_token(server: Server, path: str) -> None:
    assert server.ask("GET", path, token=None).status == 401
    cookie = {"Cookie": f"token={server.token}"}
    assert server.ask("GET", path, None, cookie, token=None).status == 401
    assert server.ask("GET", f"{path}?token={server.token}", token=None).status == 401


def test_a_wrong_token(server: Server) -> None:
    for wrong in (server.token[:-1], server.token + "x", "", "é", server.token.swapcase()):
        headers = {"Authorization": f"Bearer {wrong}".encode("latin-1").decode("latin-1")}
        assert server.ask("GET", "/api/jobs", None, headers, token=None).status == 401
    basic = {"Authorization": f"Basic {server.token}"}
    assert server.ask("GET", "/api/jobs", None, basic, token=None).status == 401
    # Two headers are none.
    lines = b"".join(
        f"Authorization: Bearer {token}\r\n".encode() for token in ("wrong", server.token)
    )
    head = f"GET /api/jobs HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode()
    assert said(server, head + lines + b"\r\n").startswith(b"HTTP/1.1 401")


def test_a_token_in_the_referer(server: Server) -> None:
    """It is not taken from there, no answer has it, and browsers are told to send none."""
    headers = {"Referer": f"{own(server)}/#{server.token}"}
    assert server.ask("GET", "/api/jobs", None, headers, token=None).status == 401
    for path in ("/", "/api/settings", "/api/jobs"):
        answer = server.ask("GET", path)
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert server.token.encode() not in answer.body
        assert server.token not in str(answer.headers)


def test_only_its_owner_reads_the_token(server: Server) -> None:
    if sys.platform == "win32":
        pytest.skip("a user's profile is private there")
    folder = server.folder / "serve"
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "token").read_text() == server.token


def test_an_svg(server: Server) -> None:
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    for name in ("x.svg", "x.png", "x.html"):
        job = server.send(name, svg)
        assert job["state"] == "failed"
        for what in ("result", "view", "source", "thumbnail"):
            answer = server.ask("GET", f"/api/jobs/{job['id']}/{what}")
            assert answer.status in (409, 422), what
            assert answer.headers["content-type"] == "application/json"


def test_a_picture_that_is_a_page_as_well(server: Server) -> None:
    """Uploaded bytes never go out: not even those of a picture that stays as it is."""
    comment = io.BytesIO()
    Image.fromarray(noise(6, 5, 3)).save(comment, "JPEG", comment=HTML)
    for name, content in {"x.png": PNG + HTML, "x.jpg": comment.getvalue() + HTML}.items():
        for query in ({}, {"scale": "1", "noise": "auto"}):
            job = server.ended(server.send(name, content, **query)["id"])
            assert job["state"] == "done", job
            for what in ("result", "view", "source", "thumbnail"):
                answer = server.ask("GET", f"/api/jobs/{job['id']}/{what}")
                assert answer.status == 200
                assert answer.body != content
                assert not answer.body.endswith(HTML)
                checked_answer(answer)


def test_folders_in_names(server: Server) -> None:
    for name in (
        "../../evil.png",
        "..\\..\\evil.png",
        "/etc/cron.d/evil.png",
        "C:\\evil.png",
        "evil.png\x00.svg",
        "con.png",
        "....png",
        "a" * 5000 + ".png",
        "\r\nSet-Cookie: a=b.png",
        "<img src=x onerror=alert(1)>.png",
    ):
        job = server.ended(server.send(name, PNG)["id"])
        assert job["state"] == "done", job
        called = job["result"]["name"]
        assert not set(called) & set('/\\\r\n\x00<>:"|?*'), called
        assert len(called.encode()) < 200
        answer = server.ask("GET", f"/api/jobs/{job['id']}/result")
        assert answer.status == 200
        assert "set-cookie" not in answer.headers
    for path in ("/../pyproject.toml", "/..%2f..%2fetc/passwd", "/%2e%2e/x", "/page/../app.py"):
        assert server.ask("GET", path).status == 404
    for identity in ("..", "%2e%2e", "..%2f..%2fqueue.sqlite", "x" * 4000):
        for what in ("", "/result", "/view"):
            assert server.ask("GET", f"/api/jobs/{identity}{what}").status == 404


def test_names_in_archives(server: Server) -> None:
    book = io.BytesIO()
    with zipfile.ZipFile(book, "w") as archive:
        for name in ("../../evil.png", "/etc/evil.png", "ok.png"):
            archive.writestr(name, PNG)
    job = server.ended(server.send("../book.cbz", book.getvalue())["id"])
    assert job["state"] == "failed"
    assert job["error"].startswith("book.cbz: ../../evil.png: it leads out of its folder")
    answer = server.ask("GET", "/api/archive")
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        for name in archive.namelist():
            assert not set(name) & set("/\\:"), name
            assert not name.startswith(".")


def test_of_an_archive_only_pictures_come_back(server: Server) -> None:
    book = io.BytesIO()
    with zipfile.ZipFile(book, "w") as archive:
        archive.writestr("page.html", HTML)
        archive.writestr("ComicInfo.xml", b"<ComicInfo><Title>Tom</Title><!--evil--></ComicInfo>")
        for name in ("../../evil.html", "setup.exe", "ok.png"):
            archive.writestr(name, PNG if name == "ok.png" else HTML)
        archive.comment = HTML
    job = server.ended(server.send("book.cbz", book.getvalue())["id"])
    assert job["state"] == "done", job
    result = server.ask("GET", f"/api/jobs/{job['id']}/result").body
    assert b"script" not in result
    with zipfile.ZipFile(io.BytesIO(result)) as archive:
        assert archive.namelist() == ["ComicInfo.xml", "ok.png"]
        info = archive.read("ComicInfo.xml")
    assert b"Tom" in info
    assert b"evil" not in info


def test_a_bomb_of_members_is_refused_at_once(server: Server) -> None:
    """Some kilobytes that unpack to half a gigabyte, each member small enough."""
    book = io.BytesIO()
    with zipfile.ZipFile(book, "w") as archive:
        archive.writestr("ok.png", PNG)
        archive.writestr("0.png", bytes(1 << 20), zipfile.ZIP_DEFLATED)
    # As many entries as it takes, all of one content.
    end = book.getvalue().rindex(b"PK\5\6")
    (start,) = struct.unpack_from("<I", book.getvalue(), end + 16)
    directory, bomb = book.getvalue()[start:end], book.getvalue()[:start]
    entry = directory[directory.rindex(b"PK\1\2") :]
    table = directory + entry * 600
    count = 602
    bomb += table + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, count, count, len(table), start, 0)
    job = server.send("book.cbz", bomb)
    assert job["state"] == "failed"
    assert job["error"].startswith("book.cbz: its files unpack to more than 50 times its size")


def test_a_body_of_ten_gigabytes(server: Server) -> None:
    """Announced, it is refused at once; streamed, once there is too much of it."""
    head = (
        "POST /api/jobs?name=x.png HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
    )
    announced = f"{head}Content-Length: {10 << 30}\r\n\r\n".encode()
    assert said(server, announced).startswith(b"HTTP/1.1 413")
    with connected(server) as client:
        client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        sent, chunk = 0, bytes(1 << 16)
        try:
            while sent < 10 << 30:
                client.sendall(b"10000\r\n" + chunk + b"\r\n")
                sent += len(chunk)
        except OSError:
            pass  # cut off
    assert sent < 64 * MOST_BYTES
    # Without the token nothing is read at all.
    none = f"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 1000000"
    assert said(server, f"{none}\r\n\r\n".encode()).startswith(b"HTTP/1.1 401")
    jobs = server.folder / "serve" / "jobs"
    until(lambda: {path.name for path in jobs.iterdir()} == ids(server))


def test_pictures_of_too_many_pixels(server: Server) -> None:
    job = server.send("large.png", encode(Picture(noise(300, 300, 1)), "png"))
    assert job["state"] == "failed"
    assert "--max-pixels 40000" in job["error"]


def test_a_thousand_connections_that_say_almost_nothing(server: Server) -> None:
    """Each has a byte or a header without an end; the page answers all the while."""
    with ExitStack() as held:
        for number in range(1000):
            client = held.enter_context(connected(server))
            client.sendall((b"G", b"GET / HTTP/1.1\r\nX: ", b"")[number % 3])
            if number % 100 == 0:
                assert server.ask("GET", "/api/jobs").status == 200
        for _ in range(5):
            begun = time.monotonic()
            assert server.ask("GET", "/api/settings").status == 200
            assert time.monotonic() - begun < 30
        assert files_of(server) < 600


def test_slow_uploads_leave_room_for_other_requests(server: Server) -> None:
    """Two hundred that have the token, and send one byte of their file."""
    head = (
        "POST /api/jobs?name=x.png HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
        "Content-Length: 1000\r\n\r\nx"
    ).encode()
    with ExitStack() as held:
        for _ in range(200):
            held.enter_context(connected(server)).sendall(head)
        until(lambda: server.ask("POST", "/api/jobs?name=x.png", PNG).status == 503)
        for path in ("/api/jobs", "/api/settings", "/"):
            assert server.ask("GET", path).status == 200
        assert server.change("cancel", {"all": True}) == 0
    until(lambda: server.ask("POST", "/api/jobs?name=x.png", PNG).status == 201)


def test_what_is_no_http(server: Server) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n"):
        answer = said(server, garbage)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"x-content-type-options: nosniff" in answer
    huge = b"GET / HTTP/1.1\r\nX: " + bytes(200_000).replace(b"\0", b"a") + b"\r\n\r\n"
    assert b"HTTP/1.1 200" not in said(server, huge)


def test_every_answer_has_all_headers(server: Server) -> None:
    identity = server.ended(server.send("in.png", PNG)["id"])["id"]
    job = f"/api/jobs/{identity}"
    asked = [
        ("GET", path)
        for path in (
            "/", "/none", "/page.js", "/api/settings", "/api/openapi.json", "/api/jobs", job,
            f"{job}/result", f"{job}/thumbnail", f"{job}/source", f"{job}/view", "/api/none",
            f"{job}/crop?x=0&y=0&width=4&height=4", f"{job}/crop", "/api/archive",
            "/api/archive?ids=x", "/api/jobs/0", "/api/jobs?count=x",
        )
    ]  # fmt: skip
    asked += [("PUT", "/api/jobs"), ("POST", f"{job}/cancel"), ("POST", f"{job}/retry?scale=x")]
    asked += [("HEAD", f"{job}/result"), ("POST", "/"), ("DELETE", job)]
    for method, path in asked:
        for token in ("", None):
            if not (token is None and method == "DELETE"):
                checked_answer(server.ask(method, path, b"", token=token), method)


def checked_answer(answer: Answer, method: str = "GET") -> None:
    """Holds an answer to what all have, and a picture to the type that it is announced as."""
    headers = answer.headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control")]
    assert "set-cookie" not in headers
    kind = headers.get("content-type", "")
    is_page = kind.partition(";")[0] in ("text/html", "text/javascript", "text/css", "text/plain")
    if not is_page and kind != "image/svg+xml":
        assert headers["cache-control"] == "no-store", headers
        assert headers["content-disposition"].startswith("attachment")
    if kind.startswith("image/") and answer.body and method == "GET":
        with Image.open(io.BytesIO(answer.body)) as image:
            assert Image.MIME[str(image.format)] == kind


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def said(server: Server, sent: bytes) -> bytes:
    """Returns the answer to some bytes, until the end of the connection or of the header."""
    found = b""
    with connected(server) as client:
        try:
            client.sendall(sent)
            while b"\r\n\r\n" not in found and (more := client.recv(1 << 16)):
                found += more
        except ConnectionError:
            pass
    return found


def ids(server: Server) -> set[str]:
    return {job["id"] for job in server.ask("GET", "/api/jobs?count=500").data["jobs"]}


def files_of(server: Server) -> int:
    """Returns how many files and connections the process has open; 0 if the system does not
    tell."""
    folder = Path(f"/proc/{server.process.pid}/fd")
    return len(os.listdir(folder)) if folder.is_dir() else 0  # noqa: PTH208
