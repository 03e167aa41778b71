"""The order of a strip's tasks: every row is there when it is read, and its ring still holds it."""

from __future__ import annotations

import numpy as np
import pytest

from waifu2x.backends.cpu.pack.tasks import RowWindow, TaskSchedule
from waifu2x.backends.cpu.run.schedule import order


def strip(seed: int) -> tuple[list[TaskSchedule], list[tuple[int, int]]]:
    """A chain of maps, each read by the next task, by some later one, and by some that write no
    map; with windows of several rows, and maps twice as fine."""
    rng = np.random.default_rng(seed)
    height = int(rng.integers(1, 40))

    def rows() -> int:
        return int(rng.choice([1, 2, 4, 6]))

    tasks = [TaskSchedule(0, rows(), target=0)]
    spans = [(-3, height + 9)]
    fine = [1]
    for number in range(1, int(rng.integers(3, 9))):
        above = number - 1
        up = 2 if fine[above] == 1 and rng.random() < 0.3 else 1
        windows = [RowWindow(above, offset=-1, more=2)]
        others = [n for n in range(above) if fine[n] == fine[above] * up]
        if others and rng.random() < 0.5:
            windows.append(RowWindow(int(rng.choice(others)), up=up))
        tasks.append(TaskSchedule(number, rows(), tuple(windows), number, rate=(up, 1)))
        spans.append((0, height * fine[above]))
        fine.append(fine[above] * up)
    tasks += [TaskSchedule(99, rows(), (RowWindow(len(fine) - 1),))]
    spans += [(0, height * fine[-1])]
    kept = int(rng.integers(1, len(fine)))
    tasks += [TaskSchedule(98, rows(), (RowWindow(kept),))]
    spans += [(0, height * fine[kept])]
    return tasks, spans


@pytest.mark.parametrize("seed", range(40))
def test_rows_are_made_before_they_are_read_and_held_until_then(seed: int) -> None:
    tasks, spans = strip(seed)
    found = order(tasks, spans)
    done = [first for first, _ in spans]
    slots: dict[int, dict[int, int]] = {}  # by map and slot of its ring, the row that is there
    written: dict[int, range] = {}
    for n in found.runs.tolist():
        task = tasks[n]
        end = min(done[n] + task.rows, spans[n][1])
        assert end > done[n]
        for window in task.windows:
            mask = found.rings[window.map] - 1
            for row in range(*window.rows(done[n], end)):
                if row in written[window.map]:  # what lies beyond is zero, or never looked at
                    assert slots[window.map][row & mask] == row
        if task.target >= 0:
            up, down = task.rate
            mask = found.rings[task.target] - 1
            made = range(done[n] * up // down, -(-end * up // down))
            for row in made:
                slots.setdefault(task.target, {})[row & mask] = row
            first, last = (-(-edge * up // down) for edge in spans[n])
            written[task.target] = range(first, last)
        done[n] = end
    for task, row, (_, end) in zip(tasks, done, spans, strict=True):
        assert row == end or task.target >= 0  # rows that nothing reads need not be made


def test_a_chain_of_any_length() -> None:
    count = 3000
    tasks = [TaskSchedule(0, 1, target=0)]
    tasks += [TaskSchedule(n, 1, (RowWindow(n - 1),), n) for n in range(1, count)]
    tasks.append(TaskSchedule(count, 1, (RowWindow(count - 1),)))
    found = order(tasks, [(0, 2)] * len(tasks))
    assert found.runs.tolist() == [*range(count + 1)] * 2
    assert set(found.rings.values()) == {1}
