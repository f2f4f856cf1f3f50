"""Nothing in the golden folder goes unchecked unless it is left out by name."""

from __future__ import annotations

import re

import pytest

from tests.golden import test_deebert, test_ebert, test_elasticbert, test_elbert, test_romebert
from tests.golden.cases import GoldenCase
from tests.golden.left_out import array_left_out

CHECKED = {
    "deebert": test_deebert.CHECKED,
    "romebert": test_romebert.CHECKED,
    "elasticbert": test_elasticbert.CHECKED,
    "elbert": test_elbert.CHECKED,
    "ebert": test_ebert.CHECKED,
}


def test_every_array_is_checked_or_named(case: GoldenCase) -> None:
    left_out = {name: array_left_out(case, name) for name in case.array_names()}
    unknown = [
        name
        for name, reason in left_out.items()
        if reason is None and not any(re.match(pattern, name) for pattern in CHECKED[case.system])
    ]
    assert not unknown, "no test looks at these"


def test_left_out_by_name(case: GoldenCase) -> None:
    """One skip line for each part left out, so that the summary shows the whole list."""
    reasons = {array_left_out(case, name) for name in case.array_names()} - {None}
    if reasons:
        pytest.skip(f"{case.name} leaves out: {'; '.join(sorted(reasons))}")
