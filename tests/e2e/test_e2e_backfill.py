"""A recorded cluster that existed before its log: a full backup and a log backup, added with one command. A pull that
begins with a snapshot, and every change, with its old value, are what SELECT showed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support import golden, log_backup, pull
from support.command import patient_command
from support.cut_set import commit_timestamps, cut
from support.effort import cases
from support.golden import Delivery
from support.platform import Platform
from support.points_world import point_world
from support.pull_world import golden_world
from support.waiting import eventually
from tistream.logbackup import prefix
from tistream.read.cursor import Position
from tistream_api.status.backfilled_tables import GONE

Line = dict[str, Any]


def say(*words: str) -> str:
    """What a command of `tistream` prints."""
    done = patient_command(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rows_of(lines: list[Line]) -> Counter[str]:
    """Rows as a bag, without the commit_ts, which a backfill may leave out."""
    names = ("database", "table", "schema_version", "key", "row")
    return Counter(json.dumps([line[name] for name in names]) for line in lines)


def changes_of(lines: list[Line]) -> Counter[str]:
    """Row events, without the schema_version, which no snapshot states: it is 0 until the first DDL."""
    names = ("op", "commit_ts", "start_ts", "database", "table", "table_id", "key", "row", "old_row")
    return Counter(json.dumps([line[name] for name in names]) for line in lines if line["type"] == "row")


@pytest.mark.parametrize("name", cases(["large"], ["everything"]))
def test_one_command_gives_a_tenant_with_rows_and_changes(up: Platform, name: str, tmp_path: Path) -> None:
    recorded, stamps = log_backup.load(name), commit_timestamps(name)
    made = cut(name, stamps[len(stamps) * 7 // 10])
    assert recorded.start_ts < made.t0 < recorded.end_ts
    log, full = tmp_path / "log", tmp_path / "full"
    for key, body in recorded.puts:
        golden.put(log, Delivery(0, key, body))
    upstream = prefix.parse_backupmeta((log / "backupmeta").read_bytes()).cluster_id
    for key, body in made.backup(1, cluster_id=upstream).items():
        golden.put(full, Delivery(0, key, body))
    where = ("--cluster", "7", "--tenant", f"rowed-{name}", "--url", up.url)
    say("tenant", "create", *where)
    added = say("source", "add", "--log-backup", str(log), "--br-full", str(full), *where)
    assert "source log-1" in added
    assert "backfill of all tables has begun" in added
    tenant = f"{up.url}/v1/clusters/7/tenants/rowed-{name}"
    with up.patient_http() as http:

        def info() -> dict[str, Any]:
            found: dict[str, Any] = http.get(f"{tenant}/backfills/b1").json()
            return found

        eventually(lambda: info()["state"] != "running")
        assert (info()["state"], info()["reason"]) == ("finished", None)
        # The API reads by itself the manifests that name the rows.
        eventually(lambda: all(one["base_ts"] is not None or one["held_by"] == GONE for one in info()["tables"]))
        eventually(lambda: all(one["rows"] is not None for one in info()["tables"]))
        state = made.state(made.t0)
        rows = state.filter(state["table_id"].is_in(made.physical_ids(made.t0))).height
        assert sum(one["rows"] for one in info()["tables"]) == rows > 1_000
        eventually(lambda: int(http.get(f"{tenant}/status").json()["resolved_ts"]) == recorded.end_ts)
        answer = http.get(f"{tenant}/changes", params={"start_ts": made.t0, "limit": 1_000_000})
        events = [pull.parse(line) for line in answer.content.splitlines()]
    assert "finished" in say("backfill", "list", *where)

    lines = [json.loads(line) for line in say("pull", "--snapshot", "now", *where).splitlines()]
    end = next(at for at, line in enumerate(lines) if line["type"] == "snapshot_end")
    assert lines[0] == {"type": "snapshot_begin", "snapshot_ts": str(recorded.end_ts)}
    plain = point_world(name)
    select = [
        {"database": version.database, "table": version.head.name, **row}
        for version in made.tables(recorded.end_ts)
        for row in plain.lines(version.database, version.head.name, recorded.end_ts)
    ]
    assert rows_of(lines[1:end]) == rows_of(select)
    assert lines[end + 1]["type"] == "resolved"

    whole = golden_world(name)  # of which tests show that a platform's pulls are equal to it
    pushed = [pull.parse(line) for line in whole.pull(start=Position(whole.snapshot_ts)).splitlines()]
    expected = [one for one in pushed if one["type"] == "row" and made.t0 < int(one["commit_ts"]) <= recorded.end_ts]
    assert changes_of(events) == changes_of(expected), "old values of rows from before the log are those of the backup"
