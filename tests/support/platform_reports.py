"""A failed test prints what the running platforms and its agents said (a pytest plugin): the status of tenants,
the ends of the logs.

A red run can so be read without running it again.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from support import agent_process
from support.platform import STARTED

LINES = 25  # of an agent's log


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add a section for each platform that runs to the report of a failure."""
    report = yield
    if report.failed:
        for platform in STARTED:
            if platform.alive():
                report.sections.append(
                    (f"platform in {platform.data_dir}", f"{platform.statuses()}\n{platform.report()}")
                )
        for agent in agent_process.STARTED:
            lines = agent.log.read_text(errors="replace").splitlines()[-LINES:] if agent.log.exists() else []
            report.sections.append((f"agent, log {agent.log}", "\n".join(lines)))
    if report.when == "teardown":
        agent_process.STARTED.clear()
    return report
