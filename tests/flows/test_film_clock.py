"""Recordings that follow one another in a file: one clock for all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from waifu2x.formats.film.reading import decoding  # noqa: E402
from waifu2x.formats.film.reading.opening import opened  # noqa: E402
from waifu2x.formats.film.reading.reader import Reader  # noqa: E402
from waifu2x.formats.film.reading.selection import Selection  # noqa: E402
from waifu2x.formats.film.reading.times import OneClock  # noqa: E402

VIDEO, AUDIO, TEXT = range(3)
KINDS = ("video", "audio", "subtitle")
WRAP = (1 << 33) / 90_000
"""Seconds that FFmpeg adds to a clock that has gone back far."""


def packet(stream: int, dts: float, *, later: float = 0, length: float = 0.04) -> Any:
    """A packet, in seconds, which is shown `later` than it is decoded."""
    decoded = round(dts * 90_000)
    return SimpleNamespace(
        stream_index=stream, stream=SimpleNamespace(type=KINDS[stream]), size=10, pos=None,
        dts=decoded, pts=decoded + round(later * 90_000), duration=round(length * 90_000),
    )  # fmt: skip


def recording(begin: float, seconds: float = 1, *, sound: float | None = 0.3) -> list[Any]:
    """Pictures with reordering, sound that begins so much earlier, and a line of text."""
    count = round(seconds * 25)
    made = [
        packet(VIDEO, begin + one / 25, later=(0.08, 0.16, 0.04, 0.04)[one % 4])
        for one in range(count)
    ]
    if sound is not None:
        made += [packet(AUDIO, begin - sound + one / 25) for one in range(count)]
    made.append(packet(TEXT, begin + 0.1, length=0.5))
    return sorted(made, key=lambda one: (one.dts, one.stream_index))


def in_file(packets: Iterable[Any]) -> list[Any]:
    """The packets, each with its place."""
    found = list(packets)
    for place, one in enumerate(found):
        one.pos = place * 188
    return found


def told(packets: Iterable[Any]) -> list[tuple[int, int, int]]:
    return [(one.stream_index, one.dts, one.pts - one.dts) for one in packets]


def moves(recordings: list[list[Any]], order: list[Any]) -> list[float]:
    """By how many seconds each recording is moved, all of its packets alike."""
    raw = {id(one): one.dts for one in order}
    made: list[Any] = list(OneClock().given(iter(order)))
    assert sorted(map(id, made)) == sorted(raw)
    found = []
    for one in recordings:
        shifts = {each.dts - raw[id(each)] for each in one}
        assert len(shifts) == 1, shifts
        found.append(shifts.pop() / 90_000)
    for stream in (VIDEO, AUDIO):
        times = [one.dts for one in made if one.stream_index == stream]
        steps = [(later - sooner) / 90_000 for sooner, later in itertools.pairwise(times)]
        assert min(steps, default=0.04) > 0.0399, (stream, min(steps))
        assert max(steps, default=0) <= 0.5
    return found


@pytest.mark.parametrize(
    "begins",
    [
        (20, 5, 1),
        (7, 7, 7),
        (20, 20.5, 19),
        (7, 90_000, 7),
        (2000, 5 + WRAP, 1 + WRAP),
    ],
    ids=["back", "the same", "by half a second", "far ahead", "wrapped"],
)
def test_recordings_follow_one_another(begins: tuple[float, ...]) -> None:
    alone = [recording(begin) for begin in begins]
    found = moves(alone, in_file(itertools.chain(*alone)))
    assert found[0] == 0
    for number, (sooner, later) in enumerate(itertools.pairwise(found)):
        # The longest stream of each lasts 1.12 s behind the beginning of its pictures.
        assert 1 <= later + begins[number + 1] - sooner - begins[number] <= 1.2


def test_a_packet_that_comes_late_stays_in_its_recording() -> None:
    """The demuxer gives the last packet of a stream once the next one's beginning is there."""
    alone = [recording(20), recording(5), recording(1)]
    places = in_file(itertools.chain(*alone))
    order = [
        *alone[0][:-1], *alone[1][:3], alone[0][-1], *alone[1][3:-1],
        *alone[2][:2], alone[1][-1], *alone[2][2:],
    ]  # fmt: skip
    assert len(order) == len(places)
    assert moves(alone, order)[0] == 0


def test_text_goes_with_its_recording() -> None:
    alone = [recording(20), recording(5)]
    text = packet(TEXT, 20.99)
    late = packet(TEXT, 5.0)
    alone[0].append(text)
    in_file([*alone[0], *alone[1]])
    late.pos = alone[1][0].pos + 1
    alone[1].append(late)
    order = [*alone[0][:-1], alone[1][0], late, text, *alone[1][1:-1]]
    assert moves(alone, order)[1] > 0


@pytest.mark.parametrize("kinds", [(VIDEO, AUDIO), (VIDEO,), (AUDIO,)])
def test_a_stream_that_is_not_there_any_more_holds_nothing(kinds: tuple[int, ...]) -> None:
    """A sound that has ended, or is in one of the recordings alone."""
    first = recording(50_000, 20)
    first = [one for one in first if one.stream_index in kinds or one.dts < 50_005 * 90_000]
    second = [one for one in recording(1_000, 40) if one.stream_index == VIDEO]
    seen = 0

    def given() -> Iterator[Any]:
        nonlocal seen
        for one in in_file([*first, *second]):
            seen += 1
            yield one

    clock = OneClock()
    times: list[tuple[int, int]] = []
    made: Any
    for made in clock.given(given()):
        assert seen - len(times) < 400
        times.append((made.stream_index, made.dts))
    shown = [time for stream, time in times if stream == VIDEO]
    assert clock.recordings == 2
    assert shown == sorted(shown)
    assert max(later - sooner for sooner, later in itertools.pairwise(shown)) < 16 * 90_000


@pytest.mark.parametrize("sound", [None, 0.3])
@pytest.mark.parametrize("wrong", [-5000, -0.9, -0.2, 0.9, 30, 90_000])
def test_a_damaged_packet_is_no_recording(wrong: float, sound: float | None) -> None:
    film = in_file(recording(20_000, 4, sound=sound))
    film[50].dts += round(wrong * 90_000)
    film[50].pts += round(wrong * 90_000)
    clock = OneClock()
    before = told(film)
    assert told(clock.given(film)) == before
    assert clock.recordings == 1


@pytest.mark.parametrize("leap", [-30, 30])
def test_one_stream_that_leaps_is_no_recording(leap: float) -> None:
    film = in_file(recording(20_000, 4))
    for one in film[len(film) // 2 :]:
        if one.stream_index == AUDIO:
            one.dts += leap * 90_000
            one.pts += leap * 90_000
    before = told(film)
    assert told(OneClock().given(film)) == before


def test_a_gap_is_no_recording() -> None:
    film = in_file([*recording(1_000), *recording(1_090)])
    before = told(film)
    assert told(OneClock().given(film)) == before


def two(path: Path, begins: tuple[float, ...] = (100, 20)) -> Path:
    """Several recordings of 48 pictures in one file of MPEG-TS."""
    data = []
    for number, begin in enumerate(begins):
        one = path.with_name(f"{number}.ts")
        times = [round(begin * 90_000) + index * 3600 for index in range(48)]
        sounds = [("ac3", begin + 0.3)]
        films.film(one, tick=films.TICK, times=times, size=(32, 48), sounds=sounds)
        data.append(one.read_bytes())
    path.write_bytes(b"".join(data))
    return path


def read(path: Path, selection: Selection) -> list[tuple[int, bytes]]:
    """Times and samples of frames."""
    with path.open("rb") as file, opened(file, "film") as container:
        reader = Reader(container, file, "film")
        found = [
            (one.pts, bytes(one.frame.planes[0]))
            for one in reader.frames(selection)
            if one.is_wanted
        ]
        assert not reader.ending.moved
        assert not reader.ending.is_short
    return found


@pytest.mark.parametrize("begins", [(100, 20), (20, 20)], ids=["back", "alike"])
@pytest.mark.parametrize("most", [0, 64 << 20])
def test_a_place_in_the_second_recording_is_found(
    begins: tuple[float, ...], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_MOST_SKIPPED", most)
    path = two(tmp_path / "film.ts", begins)
    whole = read(path, Selection())
    times = [time for time, _ in whole]
    assert len(times) == 96
    assert {later - sooner for sooner, later in itertools.pairwise(times)} == {3600}
    start = Fraction(times[80], 90_000)
    assert read(path, Selection(start=start)) == whole[80:]
    assert read(path, Selection(start=start, end=start + 1)) == whole[80:][:25]
    assert read(path, Selection(first=times[85])) == whole[85:]
