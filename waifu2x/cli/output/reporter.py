"""Reports on a batch: on each file as it ends, and on all together at the end."""

from __future__ import annotations

import threading
import time
from fractions import Fraction
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from waifu2x import __version__
from waifu2x.cli.output import report
from waifu2x.flows.batch.plan import JobList
from waifu2x.flows.outcome import Outcome, Tally

if TYPE_CHECKING:
    from waifu2x.flows.batch.html_report import HtmlReport

_LINES = 1000
"""The most lines of JSON that are written together."""
_ALWAYS = ("model", "noise", "scale", "format", "precision")
"""Options that a report names even if they were not given."""
_NEVER = ("page", "as_json", "overwrite", "skip_existing")
"""Options that change no result."""


def settings_of(context: click.Context) -> list[tuple[str, str]]:
    """Returns what decided a command's results: the version, the main options, and the given
    ones."""
    rows = [("waifu2x-kernels", __version__), ("date", time.strftime("%Y-%m-%d %H:%M"))]
    for parameter in context.command.params:
        name = parameter.name or ""
        value = context.params.get(name)
        given = context.get_parameter_source(name) != ParameterSource.DEFAULT
        if name in _NEVER or value is None or not (given or name in _ALWAYS):
            continue
        shown = f"{float(value):g}" if isinstance(value, Fraction) else str(value)
        if isinstance(value, tuple):
            shown = ", ".join(map(str, value))
        rows.append((max(parameter.opts, key=len), "yes" if value is True else shown))
    return rows


class BatchReporter:
    """Counts outcomes and shows them as JSON. When its context ends, in any way, it tells a
    summary, the failures and where the time went."""

    def __init__(
        self,
        expected: int | None,
        passed_over: int,
        page: HtmlReport | None,
        *,
        as_json: bool,
    ) -> None:
        """`expected` is the number of outcomes, None if it is unknown; `passed_over` the number of
        files that are neither pictures nor films."""
        self.tally = Tally()
        self.stopped_for = ""
        """The reason to begin no more files."""
        self._expected = expected
        self._passed_over = passed_over
        self._page = page
        self._as_json = as_json
        self._lock = threading.Lock()
        self._is_finished = False

    def add(self, outcome: Outcome) -> None:
        """Counts an outcome."""
        self.tally.add(outcome)
        if self._as_json:
            report.show(report.json_line(outcome))
        elif report.is_verbose() and outcome.made is not None:
            for line in report.noise_lines(outcome.job.source, outcome.made, verbose=True):
                report.detail(line)
        if self._page is not None:
            self._page.add(outcome)

    def skip(self, jobs: JobList) -> None:
        """Counts files whose outputs existed before, which may be very many."""
        self.tally.counts["skipped"] += len(jobs)
        for start in range(0, len(jobs) if self._as_json else 0, _LINES):
            outcomes = (Outcome(job) for job in jobs[start : start + _LINES])
            report.show("\n".join(map(report.json_line, outcomes)))

    @property
    def left(self) -> int:
        """Returns how many files have no outcome."""
        return 0 if self._expected is None else self._expected - self.tally.ended

    def __enter__(self) -> BatchReporter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.finish(cut_off=error is not None)

    def finish(self, *, cut_off: bool = True) -> None:
        """Tells the end, once; `cut_off` if the run did not end by itself. Any thread may call
        it."""
        with self._lock:
            if not self._is_finished:
                self._is_finished = True
                self._tell_end(cut_off)

    def _tell_end(self, cut_off: bool) -> None:
        lines = [self.stopped_for] if self.stopped_for else []
        lines.append(report.summary(self.tally, self._passed_over, self.left))
        if removed := report.noise_summary(self.tally.levels):
            lines.append(removed)
        if recomputed := report.recomputed_line(self.tally.recomputed):
            lines.append(recomputed)
        # A success is told only on a terminal, or with --verbose.
        is_well = not (cut_off or self.tally.troubled or self.left or self.stopped_for)
        tell = report.say if is_well else report.error
        try:
            for line in report.stages_table(self.tally):
                report.detail(line)
            for line in lines:
                tell(line)
            for outcome in self.tally.troubled:
                report.error(report.text_line(outcome))
        finally:  # the terminal may be gone
            if self._page is not None:
                self._page.finish(lines, self.tally.troubled)
