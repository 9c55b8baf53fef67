"""What could not be run here is said at the end of the run (a pytest plugin), and on CI it is a failure."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

MARK = "NOT RUN: "


def not_run(reason: object) -> NoReturn:
    """End the test that wants what is not there: skipped, and told at the end of the run; with CI set, failed."""
    text = " ".join(str(reason).split())
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        pytest.fail(f"{MARK}{text} (CI is set: everything must run)", pytrace=False)
    pytest.skip(f"{MARK}{text}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a reason, with the number of tests."""
    reasons: dict[str, int] = {}
    for outcome in ("skipped", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, ()):
            said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            if (reason := said.removeprefix("Skipped: ").strip()).startswith(MARK):  # not a traceback that quotes it
                reasons[reason] = reasons.get(reason, 0) + 1
    if reasons:
        terminalreporter.section("NOT RUN", red=True, bold=True)
    for reason, tests in reasons.items():
        terminalreporter.line(f"{reason} ({tests} tests)", red=True)
