"""What `tistream undo` prints: counts, and conflicts by their cause."""

from __future__ import annotations

from typing import Any

from tistream_cli.restore.undo import plan_lines

BY = {"start_ts": "470597720620138496", "commit_ts": "470597720637702144"}


def conflict(key: int, by: dict[str, str] | None = BY, now: dict[str, Any] | None = None) -> dict[str, Any]:
    left = {"id": key, "amount": "5.00", "note": "x" * 100}
    return {
        "database": "shop",
        "table": "or\x1b[31mders",
        "key": {"id": key},
        "reason": "another transaction has changed the same columns since",
        "left": left,
        "now": now,
        "by": by,
    }


def plan(*conflicts: dict[str, Any], **more: Any) -> list[str]:
    counts = {"insert": 1, "update": 2, "delete": 3, "unchanged": 0, "conflicts": len(conflicts)}
    return list(
        plan_lines({"ts": "470597720790007808", "counts": counts, "conflicts": conflicts, "dropped": [], **more})
    )


def test_counts_and_what_runs_it() -> None:
    shown = plan()
    assert shown[1] == "1 insert  2 update  3 delete  0 unchanged  0 conflicts"
    assert shown[-1].startswith("nothing was changed: --apply")
    assert plan(applied=6)[-1] == "applied: 6 rows changed"


def test_conflicts_of_one_cause_are_counted_with_three_examples() -> None:
    shown = plan(*map(conflict, range(5)), conflict(9, by=None))
    assert [line for line in shown if "conflict" in line][1:] == [
        line for line in shown if line.startswith(("5 conflicts: shop.", "1 conflict: shop."))
    ] + ["every conflict: -o json"]
    assert sum("left as" in line for line in shown) == 4


def test_an_example_shows_what_differs_cut_and_without_control_characters() -> None:
    shown = plan(conflict(7, now={"id": 7, "amount": "6.00", "note": "x" * 100}))
    (left,) = [line for line in shown if "left as" in line]
    assert left.strip() == "id=7: left as amount=5.00"
    assert "\x1b" not in "".join(shown)
    (gone,) = [line for line in plan(conflict(7)) if "left as" in line]
    assert "x" * 41 not in gone
