"""A sample of the odd pictures; `python -m tests.helpers.odd_pictures` runs them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.odd_pictures import outcome_of, sample


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_odd_pictures(tmp_path: Path) -> None:
    outcomes = [outcome_of(name, content, tmp_path) for name, content in sample(3, 2000, 17)]
    assert len(outcomes) > 100
    assert {"done", "refused"} == set(outcomes)
