"""What could not be run here is said loudly, and on CI it is a failure."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import pytest

MARK = "NOT RUN: "


def not_run(reason: object) -> NoReturn:
    """End the test that wants what is not there: skipped and told at the end of the run; with CI set, failed."""
    text = " ".join(str(reason).split())
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        pytest.fail(f"{MARK}{text} (CI is set, and CI runs everything)", pytrace=False)
    pytest.skip(f"{MARK}{text}")


def told(stats: dict[str, list[Any]]) -> dict[str, int]:
    """{reason: how many tests} of a finished run, as its terminal reporter has them."""
    reasons: dict[str, int] = {}
    for outcome in ("skipped", "failed", "error"):
        for report in stats.get(outcome, ()):
            said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            if MARK in said:
                reason = said[said.index(MARK) + len(MARK) :].splitlines()[0]
                reasons[reason] = reasons.get(reason, 0) + 1
    return reasons
