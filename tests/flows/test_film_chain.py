"""Which parts of a film are missing, and who makes what of it: without any film."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from waifu2x.errors import ImageError
from waifu2x.flows.film.parts.part_files import PartRecord
from waifu2x.flows.film.parts.part_runs import PartRun, RunQueue, missing_runs, runs_within
from waifu2x.formats.film.writing.encode import Encoded

TICKS = 10
"""Ticks of a part, which has two frames: at 2 and at 7."""


def part(
    number: int, of: int | None = None, *, sought: bool = False, damaged: int = 0, **changed: Any
) -> PartRecord:
    """A part as it follows from those around it; `of` is how many the film has."""
    first = number * TICKS + 2
    pts = (first, first + 5)
    record = PartRecord(
        Encoded(pts, (5, 5), 0),
        100,
        "fingerprint",
        f"frame {first - 5}" if number else "",
        f"frame {pts[-1]}",
        None if number + 1 == of else first + TICKS,
        2,
        damaged,
        0,
        False,
        sought,
        (),
    )
    return record._replace(**changed)


def film(*numbers: int, of: int) -> dict[int, PartRecord]:
    return {number: part(number, of) for number in numbers}


@pytest.mark.parametrize(
    ("there", "runs"),
    [
        ((), [PartRun(0, None, None)]),
        ((0,), [PartRun(1, None, "frame 7")]),
        ((0, 1, 2, 3), []),
        ((1, 2, 3), [PartRun(0, 1)]),
        ((0, 3), [PartRun(1, 3, "frame 7")]),
        ((1, 3), [PartRun(0, 1), PartRun(2, 3, "frame 17")]),
        ((0, 1, 2), [PartRun(3, None, "frame 27")]),
    ],
)
def test_gaps_are_found(there: Sequence[int], runs: list[PartRun]) -> None:
    assert missing_runs(film(*there, of=4), 0, TICKS) == (runs, frozenset())


def test_a_selection_may_begin_later() -> None:
    there = {2: part(2, 4, before=""), 3: part(3, 4)}
    assert missing_runs(there, 2, TICKS).runs == []
    assert missing_runs({3: part(3, 4)}, 2, TICKS).runs == [PartRun(2, 3)]
    # Where no frame is in the part in which it begins, the next is the first.
    assert missing_runs({3: part(3, 4, before="")}, 2, TICKS).runs == []


def test_a_film_may_have_parts_without_frames() -> None:
    there = {0: part(0, following=32), 3: part(3, 4, before="frame 7")}
    assert missing_runs(there, 0, TICKS) == ([], frozenset())


@pytest.mark.parametrize(
    ("changed", "sought", "wrong"),
    [
        ({"before": "another"}, (1,), {1}),
        ({"before": "another"}, (0, 1), {0, 1}),
        ({"before": "another"}, (0,), {0}),
        ({"encoded": Encoded((13, 17), (4, 5), 0)}, (1,), {1}),
    ],
)
def test_what_was_sought_and_does_not_meet_is_made_again(
    changed: Mapping[str, Any], sought: Sequence[int], wrong: set[int]
) -> None:
    there = film(0, 1, 2, of=3)
    there[1] = part(1, 3, **changed)
    there |= {number: there[number]._replace(is_sought=True) for number in sought}
    found = missing_runs(there, 0, TICKS)
    assert found.wrong == wrong
    assert found.runs == [PartRun(min(wrong), max(wrong) + 1, found.runs[0].before)]


def test_what_was_decoded_and_does_not_meet_is_a_sentence() -> None:
    there = film(0, 1, of=2) | {1: part(1, 2, before="another")}
    with pytest.raises(ImageError, match=r"differ from when .*--restart"):
        missing_runs(there, 0, TICKS)
    concealed = there | {0: part(0, damaged=1)}
    assert missing_runs(concealed, 0, TICKS) == ([], frozenset())


def test_runs_are_cut_to_a_stretch() -> None:
    runs = [PartRun(0, 4, "a"), PartRun(6, None, "b", is_sought=False)]
    assert runs_within(runs, 0, None) == runs
    assert runs_within(runs, 2, 8) == [
        PartRun(2, 4),
        PartRun(6, 8, "b", is_sought=False),
    ]
    assert runs_within(runs, 4, 6) == []


def taken(queue: RunQueue) -> list[tuple[int, int | None]]:
    """All runs that one maker gets who makes each at once."""
    return [(run.first, run.until) for run in queue]


def test_shares_grow_smaller_and_cover_all() -> None:
    found = taken(RunQueue([PartRun(0, 40)], 40, 2))
    assert found[0] == (0, 10)  # a quarter: two makers, half an equal share
    assert [end for _, end in found][:-1] == [begin for begin, _ in found][1:]
    assert found[-1][1] == 40
    lengths = [end - begin for begin, end in found if end is not None]
    assert lengths == sorted(lengths, reverse=True)
    assert max(end - begin for begin, end in taken(RunQueue([PartRun(0, 40)], 40, 1, 3))) == 3  # type: ignore[operator]


def test_what_is_not_sought_stays_whole() -> None:
    run = PartRun(0, 40, is_sought=False)
    assert taken(RunQueue([run], 40, 4, 3)) == [(0, 40)]


def test_only_the_first_of_a_divided_run_knows_the_frame_before() -> None:
    runs = list(RunQueue([PartRun(5, 9, "before")], 9, 1))
    assert [run.before for run in runs] == ["before", *[None] * (len(runs) - 1)]


def test_a_film_longer_than_it_says_is_gone_on_with_until_its_end() -> None:
    queue = RunQueue([PartRun(0, None)], 4, 1)
    found = []
    for run in queue:
        found.append((run.first, run.until))
        if run.first >= 8:
            queue.end()
    assert found == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 8), (8, 10)]
