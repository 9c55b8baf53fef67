from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.golden import ROOT
from tistream_cli.platform.demo_report import PulledEvents, excerpt, lags_ms, percentile
from tistream_cli.platform.recorded import load_recorded
from tistream_client.cli.errors import CliError


def _row(ts: int, row: dict[str, str] | None, old_row: dict[str, str] | None = None) -> dict[str, Any]:
    return {"type": "row", "commit_ts": str(ts), "database": "d", "table": "t", "row": row, "old_row": old_row}


def _ddl(ts: int, action: str, query: str = "ALTER\n  TABLE t") -> dict[str, Any]:
    return {"type": "ddl", "commit_ts": str(ts), "database": "d", "table": "t", "query": query, "action": action}


def test_lag_is_the_time_from_arrival_to_the_resolved_that_covers_the_last_row() -> None:
    resolved = [(10, 1_000), (20, 2_000), (30, 3_000)]
    arrived = {"a": 900, "b": 1_100, "c": 2_500, "early": 1_500}
    last = {"a": 10, "b": 11, "c": 30, "early": 5}
    assert lags_ms(arrived, last, resolved) == [0, 100, 500, 900]


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (100, 100), (1, 1)])
def test_percentile_is_the_nearest_rank(percent: int, value: int) -> None:
    assert percentile(list(range(1, 101)), percent) == value
    assert percentile([7], percent) == 7


def test_seen_counts_images_and_marks() -> None:
    seen = PulledEvents()
    events: list[dict[str, Any]] = [
        _row(1, {"id": "1"}),
        _row(2, {"id": "2"}, {"id": "1"}),
        _row(3, None, {"id": "2"}),
        _ddl(4, "add column"),
        {"type": "resolved", "resolved_ts": "5", "cursor": "c"},
    ]
    for event in events:
        seen.see(json.dumps(event).encode(), 77)
    assert (seen.rows, seen.ddls, seen.removed, seen.added) == (3, 1, 2, 2)
    assert (seen.resolved, seen.resolved_ts, seen.cursor) == ([(5, 77)], 5, "c")


def test_excerpt_shows_each_kind_of_ddl_once_with_its_rows() -> None:
    events = [
        _ddl(1, "add column"),
        _row(2, {"id": "1"}),
        _row(3, None, {"id": "1"}),
        _row(4, {"id": "x" * 500}),
        _ddl(5, "add column"),
        _ddl(6, "drop column"),
    ]
    lines = excerpt(events, 5)
    assert [line.split("  ")[1].strip() for line in lines] == ["DDL", "insert", "delete"]
    assert "ALTER TABLE t" in lines[0]
    assert max(map(len, excerpt([_ddl(1, "x"), _row(2, {"id": "x" * 500})], 5))) == 200


def test_excerpt_shows_no_event_twice_and_keeps_the_order() -> None:
    events = [_ddl(1, "add"), _row(2, {"id": "1"}), _ddl(3, "truncate"), _ddl(4, "drop"), _row(5, {"id": "2"})]
    assert [line.split()[0] for line in excerpt(events, 5)] == ["1", "2", "5"]
    assert [line.split()[0] for line in excerpt(events[2:], 5)] == ["3", "5"]


def test_recorded_set_is_read() -> None:
    recorded = load_recorded(ROOT / "everything")
    assert (str(recorded.tenant), len(recorded.arrivals)) == ("7/acme", 210)
    assert recorded.rows_added > recorded.rows_removed > 0
    assert recorded.end_ts > max(arrival.commit_ts_max or 0 for arrival in recorded.arrivals) > recorded.snapshot_ts


def test_what_is_no_recorded_set_is_said() -> None:
    with pytest.raises(CliError, match="is not a recorded change set"):
        load_recorded(ROOT / "nothing")


def test_the_rows_of_a_recorded_set_may_have_any_character(tmp_path: Path) -> None:
    source, row = ROOT / "everything", {"tables": [{"removed": [["a\u2028b\x85\u2029"]], "added": []}]}
    (tmp_path / "expected").mkdir()
    (tmp_path / "objects").symlink_to(source / "objects")
    (tmp_path / "layout.json").symlink_to(source / "layout.json")
    (tmp_path / "arrival.jsonl").write_bytes((source / "arrival.jsonl").read_bytes().splitlines()[0])
    (tmp_path / "expected" / "rows.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    recorded = load_recorded(tmp_path)
    assert (len(recorded.arrivals), recorded.rows_removed, recorded.rows_added) == (1, 1, 0)
