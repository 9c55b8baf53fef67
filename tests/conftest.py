"""What holds for every test."""

from __future__ import annotations

import pytest

from support.not_run import MARK, told


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = told(terminalreporter.stats)
    if reasons:
        terminalreporter.section("NOT RUN", red=True, bold=True)
        for reason, tests in reasons.items():
            terminalreporter.line(f"{MARK}{tests} tests: {reason}", red=True)
