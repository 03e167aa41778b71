"""The cache folder: entries come back as they were, or not at all."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from waifu2x import cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "deep" / "cache"
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(folder))
    return folder


def test_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.directory() == folder
    assert not folder.exists()  # asking makes nothing
    monkeypatch.delenv("WAIFU2X_CACHE_DIR")
    assert cache.directory() == Path(platformdirs.user_cache_dir("waifu2x-kernels", False))
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", "")
    assert cache.directory() == Path(platformdirs.user_cache_dir("waifu2x-kernels", False))


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 99])
def test_entries_come_back(content: bytes) -> None:
    assert cache.load("kind", "key") is None
    cache.store("kind", "key", content)
    assert cache.load("kind", "key") == content
    assert cache.load("other", "key") is None
    cache.store("kind", "key", b"replaced")
    assert cache.load("kind", "key") == b"replaced"


@pytest.mark.parametrize("position", [0, 31, 32, -1])
def test_a_flipped_bit_loses_the_entry(folder: Path, position: int) -> None:
    cache.store("kind", "key", b"content")
    stored = bytearray((folder / "kind" / "key").read_bytes())
    stored[position] ^= 1
    (folder / "kind" / "key").write_bytes(stored)
    assert cache.load("kind", "key") is None
    cache.store("kind", "key", b"content")
    assert cache.load("kind", "key") == b"content"


@pytest.mark.parametrize("size", [0, 1, 31, 32, 38])
def test_a_cut_off_entry_is_lost(folder: Path, size: int) -> None:
    cache.store("kind", "key", b"content")
    path = folder / "kind" / "key"
    path.write_bytes(path.read_bytes()[:size])
    assert cache.load("kind", "key") is None


def test_a_folder_in_the_place_of_an_entry(folder: Path) -> None:
    (folder / "kind" / "key").mkdir(parents=True)
    cache.store("kind", "key", b"content")
    assert cache.load("kind", "key") is None
    assert [path.name for path in (folder / "kind").iterdir()] == ["key"]


def test_a_file_in_the_place_of_the_cache(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_bytes(b"mine")
    cache.store("kind", "key", b"content")
    assert cache.load("kind", "key") is None
    assert cache.usage() == []
    cache.clear()
    assert folder.read_bytes() == b"mine"


def test_digests_tell_parts_apart() -> None:
    parts: list[tuple[bytes | str, ...]] = [
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        ("abc", ""),
        ("", "abc"),
        ("c", "ab"),
        (),
        ("",),
    ]
    keys = [cache.digest(*each) for each in parts]
    assert len(set(keys)) == len(parts)
    assert cache.digest("ä", b"\x00") == cache.digest("ä".encode(), "\x00")
    assert all(key.isalnum() for key in keys)  # they serve as file names


def test_usage_and_clear(folder: Path) -> None:
    assert cache.usage() == []
    cache.store("weights", "one", b"1234")
    cache.store("weights", "two", b"")
    cache.store("programs", "three", b"12345678")
    (folder / "programs" / "nested").mkdir()
    (folder / "programs" / "nested" / "file").write_bytes(b"12")
    digest = 32
    assert cache.usage() == [
        cache.Usage("programs", 2, 8 + digest + 2),
        cache.Usage("weights", 2, 4 + 2 * digest),
    ]
    cache.clear()
    assert cache.usage() == []
    assert cache.load("weights", "one") is None
    cache.store("weights", "one", b"again")
    assert cache.load("weights", "one") == b"again"
