"""The schema history against the golden sets and the DDL oracle: names, columns, visibility, DDL positions."""

from __future__ import annotations

import pytest

from support import golden
from support.compare import ACTIONS, expected_changes, expected_ddl
from support.ddl_oracle import DDL_JOB_TABLE
from support.golden import GoldenSet
from tistream.decode.keys import table_ids
from tistream.schema.history import History
from tistream.schema.tidb.meta_change import MetaDecoder, MetaRow
from tistream.schema.tidb.snapshot import parse_snapshot


def build(loaded: GoldenSet) -> History:
    """A history fed with everything that was committed."""
    snapshot = parse_snapshot(loaded.schema_snap.key, loaded.schema_snap.data)
    history, decoder = History(snapshot.snapshot_ts), MetaDecoder()
    for record in snapshot.records:
        decoder.learn(record)
    history.apply(snapshot.records)
    records = []
    rows = golden.committed_rows(loaded.name)
    for key, start_ts, commit_ts, op, value, old in rows.select(
        "key", "start_ts", "commit_ts", "op", "value", "old_value"
    ).iter_rows():
        table_id = 0 if key[:1] == b"m" else int.from_bytes(key[1:9], "big") - 2**63
        if table_id in (0, DDL_JOB_TABLE):
            record = decoder.decode(MetaRow(table_id, commit_ts, start_ts, key, value if op == 1 else None, old))
            records += [record] if record is not None else []
    history.apply(records)
    history.advance(loaded.end_ts)
    return history


@pytest.mark.parametrize("name", golden.NAMES)
def test_every_ddl_event_stands_where_the_oracle_puts_it(name: str) -> None:
    loaded = golden.load(name)
    found = build(loaded).ddl_events(loaded.snapshot_ts, loaded.end_ts)
    want = {(p.job_id, p.commit_ts, p.query, ACTIONS[p.action_type], p.schema_version) for p in expected_ddl(loaded)}
    assert {(e.job_id, e.commit_ts, e.query, e.action, e.schema_version) for e in found} == want
    assert len(found) == len(want)


@pytest.mark.parametrize("name", golden.NAMES)
def test_every_row_that_select_showed_has_its_name_and_columns(name: str) -> None:
    loaded = golden.load(name)
    history = build(loaded)
    rows = golden.committed_rows(loaded.name)
    physical: dict[int, set[int]] = {}
    ids = table_ids(rows["key"].to_arrow())
    for table_id, commit_ts in zip(ids.tolist(), rows["commit_ts"].to_list(), strict=True):
        physical.setdefault(commit_ts, set()).add(table_id)
    shapes: dict[int, dict[tuple[str, str], list[str]]] = {}
    for commit_ts, tables in physical.items():
        for table_id in tables:
            version = history.table_at(table_id, commit_ts)
            if version is not None:
                shown = [column.name for column in version.table.visible_columns]
                shapes.setdefault(commit_ts, {})[version.database, version.table.name] = shown
    for (commit_ts, database, table), change in expected_changes(loaded).items():
        assert shapes[int(commit_ts)][database, table] == change.columns
