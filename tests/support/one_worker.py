"""Which tests one process runs, one after the other (a pytest plugin for xdist): those that share a platform.

xdist's own `loadgroup` goes by marks, which its workers do not hand on with pytest 9. So groups go by the names of
files, and the tests of any other file are a group.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

FOUR_RANGES, DAMAGES, MORTAL, GUARDED = "four-ranges", "damages", "mortal", "guarded"
GROUPS = {
    **dict.fromkeys(("arrival", "console_points", "golden_pages", "requests", "simulated"), FOUR_RANGES),
    **dict.fromkeys(("backfill", "faults", "log_backup", "tenant_ends", "undecodable"), DAMAGES),
    **dict.fromkeys(("crash", "lifecycle"), MORTAL),
    **dict.fromkeys(("auth", "console_auth"), GUARDED),
}
OF_RANGES = {"[4-ranges": FOUR_RANGES, "[16-ranges": MORTAL}  # of test_e2e_golden_sets.py


def group_of(node_id: str) -> str:
    """The group of a test: of two tests of one group, one process runs both."""
    file = node_id.split("::", maxsplit=1)[0]
    stem = file.rpartition("/")[2].removesuffix(".py").removeprefix("test_e2e_")
    if stem == "golden_sets":
        return next((group for text, group in OF_RANGES.items() if text in node_id), node_id.rpartition("[")[2])
    return GROUPS.get(stem, file)


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out group after group."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup | None:
    """In place of xdist's `loadfile`."""
    return ByGroup(config, log) if config.getoption("dist") == "loadfile" else None
