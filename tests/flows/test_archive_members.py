"""Archives as people and attackers make them: names in any encoding, other kinds of archives, and
members that must not go on."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from tests.helpers.contents import encode, identity_models, noise
from waifu2x import Upscaler, upscale_file
from waifu2x.cli import cli
from waifu2x.errors import ImageError, OutputError
from waifu2x.flows import archive_members, comic_info
from waifu2x.flows.archive import upscale_archive, upscale_page
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.picture_work import WorkOptions
from waifu2x.formats.table import Quality
from waifu2x.imaging.picture import Picture

UTF8 = 0x800


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    return tmp_path


def page(seed: int = 1, extension: str = "png") -> bytes:
    return encode(Picture(noise(5, 7, 3, seed=seed)), extension)


def packed(
    *members: tuple[bytes, bytes, int, bytes], declared: Mapping[bytes, int] | None = None
) -> bytes:
    """A ZIP of stored members: name, content, flags, extra field. Some declare another unpacked
    size. APPNOTE 6.3, section 4.3."""
    parts: list[bytes] = []
    table: list[bytes] = []
    at = 0
    for name, content, flags, extra in members:
        size = (declared or {}).get(name, len(content))
        sizes = zlib.crc32(content), len(content), size, len(name), len(extra)
        head = struct.pack("<HHHHHIIIHH", 20, flags, 0, 0, 0x5921, *sizes)
        table.append(b"PK\1\2\x14\0" + head + struct.pack("<HHHII", 0, 0, 0, 0, at) + name + extra)
        parts.append(b"PK\3\4" + head + name + extra + content)
        at += len(parts[-1])
    directory, count = b"".join(table), len(members)
    end = struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), at, 0)
    return b"".join((*parts, directory, b"PK\5\6", end))


def names_in(content: bytes) -> list[tuple[bytes, int]]:
    """Names and their UTF-8 flags, read by the definition, from the directory; each stands in its
    local header, too."""
    at = struct.unpack_from("<I", content, content.rindex(b"PK\5\6") + 16)[0]
    found = []
    while content[at : at + 4] == b"PK\1\2":
        flags = struct.unpack_from("<H", content, at + 8)[0]
        lengths = struct.unpack_from("<HHH", content, at + 28)
        name = content[at + 46 : at + 46 + lengths[0]]
        (local,) = struct.unpack_from("<I", content, at + 42)
        assert content[local + 30 : local + 30 + len(name)] == name
        assert struct.unpack_from("<H", content, local + 6)[0] & UTF8 == flags & UTF8
        found.append((name, flags & UTF8))
        at += 46 + sum(lengths)
    return found


def unicode_path(header: bytes, name: str) -> bytes:
    body = b"\1" + struct.pack("<I", zlib.crc32(header)) + name.encode()
    return struct.pack("<HH", 0x7075, len(body)) + body


def upscale(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["upscale", "-m", "identity", "--backend", "numpy", *arguments])


def made(content: bytes, *arguments: str) -> bytes:
    Path("book.cbz").write_bytes(content)
    result = upscale(*arguments, "book.cbz", "out.cbz", "--overwrite")
    assert result.exit_code == 0, result.output
    return Path("out.cbz").read_bytes()


@pytest.mark.parametrize(
    ("encoding", "flags", "names"),
    [
        ("shift_jis", 0, ["漫画/表紙.png", "漫画/十.png", "能.txt"]),
        ("cp437", 0, ["Übergröße.png", "é.bmp", "▒.txt"]),
        ("gbk", 0, ["第一话/封面.png"]),
        ("utf-8", UTF8, ["漫画/表紙.png", "é.bmp", "ascii.png"]),
        ("utf-8", 0, ["漫画/表紙.png"]),  # as some systems write them, without the flag
    ],
)
def test_names_stay_to_the_byte(folder: Path, encoding: str, flags: int, names: list[str]) -> None:
    spelled = [name.encode(encoding) for name in names]
    contents = [page(1, name[-3:]) if name[-3:] != "txt" else b"text" for name in names]
    book = packed(
        *((name, content, flags, b"") for name, content in zip(spelled, contents, strict=True))
    )
    result = made(book)
    assert names_in(result) == [(name, flags) for name in spelled]
    if not flags:
        with zipfile.ZipFile(io.BytesIO(result), metadata_encoding=encoding) as judge:
            assert judge.namelist() == names
            assert judge.testzip() is None
    as_png = [name.replace(b".bmp", b".png") for name in spelled]
    assert names_in(made(book, "-f", "png")) == [(name, flags) for name in as_png]


def test_names_that_differ_only_in_their_bytes_stay_apart(folder: Path) -> None:
    names = [b"\x82.bmp", b"\x82.png", "é.png".encode()]
    book = packed(*((name, page(1, name[-3:].decode()), 0, b"") for name in names))
    assert [name for name, _ in names_in(made(book, "-f", "png"))] == [
        b"\x82.bmp.png",
        *names[1:],
    ]


@pytest.mark.skipif(shutil.which("unzip") is None, reason="unzip is not installed")
def test_a_unicode_path_goes_along(folder: Path) -> None:
    """Info-ZIP's extra field: it counts where its checksum is that of the name in the header."""
    sound, stale = unicode_path(b"?.bmp", "漫.bmp"), unicode_path(b"other", "画.png")
    result = made(packed((b"?.bmp", page(1, "bmp"), 0, sound), (b"2.png", page(), 0, stale)))
    assert names_in(result) == [(b"?.bmp", 0), (b"2.png", 0)]
    for arguments, expected in (((), "漫.bmp\n2.png\n"), (("-f", "png"), "漫.png\n2.png\n")):
        Path("judged.zip").write_bytes(
            made(
                packed((b"?.bmp", page(1, "bmp"), 0, sound), (b"2.png", page(), 0, stale)),
                *arguments,
            )
        )
        listed = subprocess.run(
            ["unzip", "-Z1", "judged.zip"],
            capture_output=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            check=True,
        )
        assert listed.stdout.decode() == expected


@pytest.mark.parametrize(
    "name",
    [
        b"../a.png", b"x/../../a.png", b"/etc/a.png", b"\\a.png", b"..\\a.png", b"C:\\a.png",
        b"c:a.png", b"x\\..\\..\\a.txt", b"../a.txt",
    ],
)  # fmt: skip
def test_no_name_leads_out_of_its_folder(folder: Path, name: bytes) -> None:
    """Neither in the header nor in a Unicode path, for pictures and for other files."""
    hidden = unicode_path(b"a.png", name.decode())
    for member in ((name, page(), 0, b""), (b"a.png", page(), 0, hidden)):
        Path("book.cbz").write_bytes(packed((b"1.png", page(), 0, b""), member))
        result = upscale("book.cbz", "out.cbz")
        shown = name.decode().replace("\\", "\\\\") if "\\" in result.stderr else name.decode()
        assert result.exit_code == 1
        assert shown.replace("\\\\", "\\") in result.stderr
        assert "leads out of its folder" in result.stderr
        assert not Path("out.cbz").exists()


@pytest.mark.parametrize("name", [b"a..b/c...png", b"1:2.png", b"vol\\1.png", b"..png"])
def test_names_that_only_look_odd_are_taken(folder: Path, name: bytes) -> None:
    assert (name, 0) in names_in(made(packed((name, page(), 0, b""), (b"1.png", page(), 0, b""))))


def test_members_are_plain_files(folder: Path) -> None:
    """A link, and a file with the rights of its owner; one of MS-DOS can still be read by all."""
    with zipfile.ZipFile("book.cbz", "w") as book:
        for name, mode in (("link.png", 0o120777), ("owner.png", 0o104755), ("dos.png", 0)):
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16 | 0x20
            book.writestr(member, page())
    with zipfile.ZipFile(io.BytesIO(made(Path("book.cbz").read_bytes()))) as result:
        modes = [member.external_attr >> 16 for member in result.infolist()]
    assert [oct(mode) for mode in modes] == ["0o777", "0o755", "0o644"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.cbz", b"Rar!\x1a\x07\x01\0" + bytes(64), "it is a RAR archive; unpack it, and pack"),
        ("a.cbr", b"Rar!\x1a\x07\0" + bytes(64), "it is a RAR archive; unpack it, and pack"),
        ("a.rar", b"Rar!\x1a\x07\0" + bytes(64), "it is a RAR archive; unpack it, and pack"),
        ("a.zip", b"7z\xbc\xaf\x27\x1c" + bytes(64), "it is a 7z archive; unpack it, and pack"),
        ("a.cbt", bytes(257) + b"ustar\00000" + bytes(250), "it is a tar archive; unpack it, and"),
        ("a.png", packed((b"1.png", b"", 0, b"")), "it is a ZIP archive; let its name end in .zip"),
        (
            "a.epub",
            packed((b"mimetype", b"application/epub+zip", 0, b"")),
            "it is an EPUB book; unpack it, and pack its pictures as a ZIP",
        ),
        ("a.cbz", b"%PDF-1.7\n" + bytes(64), "it is a PDF document; save its pages as pictures"),
        ("a.cbz", b"nothing of use", "not an archive, or damaged"),
        ("a.cbz", packed((b"1.png", page(), 1, b"")), "it is locked by a password; unpack it, and"),
    ],
)
def test_other_kinds_are_named(folder: Path, name: str, content: bytes, message: str) -> None:
    Path(name).write_bytes(content)
    target = "out.cbz" if name.endswith(("cbz", "cbr", "zip")) else "out.png"
    result = upscale(name, target)
    assert result.exit_code == 1
    assert f"Error: {name}: {message}" in result.stderr
    assert not Path(target).exists()


def test_a_zip_named_cbr_is_a_comic(folder: Path) -> None:
    """Alone, in a folder, and for Python; its result is a .cbz. A RAR is passed over in a
    folder."""
    Path("in").mkdir()
    Path("in/book.cbr").write_bytes(packed((b"1.png", page(), 0, b"")))
    Path("in/real.cbr").write_bytes(b"Rar!\x1a\x07\x01\0" + bytes(64))
    assert upscale("in/book.cbr").exit_code == 0
    assert names_in(Path("in/book-2x.cbz").read_bytes()) == [(b"1.png", 0)]
    Path("in/book-2x.cbz").unlink()
    command = ["batch", "-m", "identity", "--backend", "numpy", "in", "out"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    assert [path.name for path in Path("out").iterdir()] == ["book.cbz"]
    upscale_file("in/book.cbr", "python.zip", model="identity", backend="numpy")
    assert names_in(Path("python.zip").read_bytes()) == [(b"1.png", 0)]
    assert CliRunner().invoke(cli, ["info", "in/book.cbr"]).output.endswith("1 picture\n")
    for target in ("python.cbr", "python.png"):
        with pytest.raises(OutputError, match=r"is an archive; end it in \.cbz or \.zip"):
            upscale_file("in/book.cbr", target, model="identity", backend="numpy")
        assert "its result ends in .cbz or .zip" in upscale("in/book.cbr", target).stderr


# Budgets.


def test_members_unpack_to_a_bounded_sum(folder: Path) -> None:
    """Each fits alone: what they declare together is refused before one is unpacked."""
    names = [b"%d.txt" % number for number in range(5)]
    bomb = dict.fromkeys(names, 60 << 20)
    members = [(name, b"", 0, b"") for name in names]
    book = packed((b"1.png", page(), 0, b""), *members, declared=bomb)
    Path("book.cbz").write_bytes(book)
    result = upscale("book.cbz", "out.cbz")
    assert result.exit_code == 1
    assert "book.cbz: its files unpack to more than 50 times its size" in result.stderr
    assert not Path("out.cbz").exists()
    # In a larger archive, that many bytes are no bomb.
    large = packed((b"large", bytes(6 << 20), 0, b""), *members, declared=bomb)
    with archive_members.opened(io.BytesIO(large), "a.zip") as archive:
        assert len(archive.infolist()) == 6


def test_members_are_counted(folder: Path) -> None:
    empty = packed(*((b"%d" % number, b"", 0, b"") for number in range(20_001)))
    with (
        pytest.raises(ImageError, match=r"^a\.zip: it has more than 20,000 files"),
        archive_members.opened(io.BytesIO(empty), "a.zip"),
    ):
        pass


def test_a_directory_is_bounded_before_it_is_read(folder: Path) -> None:
    """Few entries, whose names and comments take 130 MB."""
    long = packed(*((b"%05d" % number + b"a" * 60_000, b"", 0, b"") for number in range(200)))
    with (
        pytest.raises(ImageError, match=r"^a\.zip: it has more than 20,000 files"),
        archive_members.opened(io.BytesIO(long), "a.zip"),
    ):
        pass


# Archives of strangers.

INFO = """<?xml version="1.0"?>
<?xml-stylesheet type="text/xsl" href="evil.xsl"?>
<ComicInfo xmlns:h="http://www.w3.org/1999/xhtml" xmlns="urn:x">
 <Title>Tom &amp; Zoë</Title><Number>7</Number>
 <h:script>alert(1)</h:script><Deep><script>alert(2)</script></Deep>
 <Pages><Page Image="0" Type="FrontCover" ImageWidth="7" ImageHeight="5" ImageSize="99" h:x="1"/>
 <h:script/></Pages>
</ComicInfo>"""


def strangers(content: bytes) -> bytes:
    Path("sent").write_bytes(content)
    job = Job(Path("sent"), Path("result.cbz"))
    output = Output("png", Quality(), "overwrite", pages_only=True)
    with Upscaler(2, model="identity", backend="numpy") as upscaler:
        upscale_archive(
            job,
            output,
            lambda name, content, on_progress: upscale_page(
                name, content, output, upscaler.enlarger, WorkOptions(on_progress=on_progress)
            ),
        )
    return job.target.read_bytes()


def test_of_a_strangers_archive_pictures_and_the_description_go_on(folder: Path) -> None:
    with zipfile.ZipFile("book.cbz", "w") as book:
        book.writestr("ComicInfo.xml", INFO)
        book.writestr("1.png", page())
        for name in ("x.html", "run.exe", "../up.txt", "a/ComicInfo.xml", "__MACOSX/._1.png"):
            book.writestr(name, b"<script>alert(3)</script>")
        book.comment = b"<script>alert(4)</script>"
    result = strangers(Path("book.cbz").read_bytes())
    assert [name for name, _ in names_in(result)] == [b"ComicInfo.xml", b"1.png"]
    with zipfile.ZipFile(io.BytesIO(result)) as made:
        info = made.read("ComicInfo.xml")
        assert made.comment == b""
    for unwanted in (b"script", b"alert", b"stylesheet", b"xmlns"):
        assert unwanted not in result
        assert unwanted not in info
    root = ElementTree.fromstring(info)
    assert [(each.tag, each.text) for each in root[:2]] == [
        ("Title", "Tom & Zoë"),
        ("Number", "7"),
    ]
    found = root.find("Pages/Page")
    assert found is not None
    assert found.attrib == {"Image": "0", "Type": "FrontCover"}


@pytest.mark.parametrize(
    "info",
    [
        b"<ComicInfo><Title>", b"<html><script/></html>", b"", b"\xff\xfe\0",
        b'<!DOCTYPE ComicInfo [<!ENTITY a "b">]><ComicInfo><Title>&a;</Title></ComicInfo>',
        b"<ComicInfo>" + b" " * (1 << 20) + b"</ComicInfo>",
        b'<?xml version="1.0" encoding="none"?><ComicInfo/>',
    ],
)  # fmt: skip
def test_a_strangers_damaged_description_is_left_out(folder: Path, info: bytes) -> None:
    result = strangers(packed((b"ComicInfo.xml", info, 0, b""), (b"1.png", page(), 0, b"")))
    assert names_in(result) == [(b"1.png", 0)]


def test_deep_descriptions_are_read() -> None:
    deep = b"<ComicInfo>" + b"<a>" * 50_000 + b"</a>" * 50_000 + b"</ComicInfo>"
    assert comic_info.rewritten(deep) is not None


def test_a_comics_pages_have_no_sizes_of_before(folder: Path) -> None:
    """All other bytes of the description stay."""
    info = (
        b'<ComicInfo ImageSize="1">\r\n<Pages>\r\n<Page Image="0" ImageSize="9"'
        b' ImageWidth=\'7\'\n ImageHeight = "5" Type="Story"/></Pages></ComicInfo>'
    )
    result = made(packed((b"ComicInfo.xml", info, 0, b""), (b"1.png", page(), 0, b"")))
    with zipfile.ZipFile(io.BytesIO(result)) as book:
        assert book.read("ComicInfo.xml") == (
            b'<ComicInfo ImageSize="1">\r\n<Pages>\r\n<Page Image="0" Type="Story"/></Pages>'
            b"</ComicInfo>"
        )


def test_long_names_and_damaged_bytes_are_shown_in_part(folder: Path) -> None:
    """A name may have 65,535 bytes, and zipfile shows another one of the same place as well."""
    long = b"x" * 60_000 + b".png"
    book = packed((long, page(), 0, b""))
    damaged = book.replace(long, b"y" * 60_000 + b".png", 1)
    for content, end in ((packed((b"../" + long, page(), 0, b"")), "pack it again"), (damaged, "")):
        Path("book.cbz").write_bytes(content)
        result = upscale("book.cbz", "out.cbz")
        assert result.exit_code == 1
        assert len(result.output) < 1000
        assert "xxx.png" in result.output
        assert end in result.output
