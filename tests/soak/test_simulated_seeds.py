"""`make sim`, small: seeds side by side, in processes of their own."""

from __future__ import annotations

from collections import Counter

from support.sim.seeds import many, never_met

SIDE_BY_SIDE = range(20, 28)


def test_seeds_run_side_by_side_and_meet_what_they_have_to() -> None:
    """Most of what has to happen now and then happens in a few seeds already."""
    results = list(many(SIDE_BY_SIDE, workers=2))
    assert [result.problem for result in results] == [None] * len(SIDE_BY_SIDE)
    rare = {
        "tasks lost to a newer epoch",
        "replaced processes that ended themselves",
        "owners that lost their lease",
        "damaged files",
        "scans after a loss",
        "jobs that died",
        "stores that went to another dispatcher",
        "commits in doubt",
        "uploads that landed late",
        "chains that a late upload broke",
        "databases restored",
        "stores retired",
    }
    assert set(never_met(results)) <= rare
    met = sum((result.met for result in results), Counter[str]())
    assert met["events told during the faults"] >= met["events"] / 5
    assert met["strikes"] >= 2 * len(results)
