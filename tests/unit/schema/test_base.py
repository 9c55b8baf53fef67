"""A history that forgets, and one that begins at a base, against the one that knows everything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_history_model import SNAPSHOT_TS, commits

from support.effort import examples
from support.schema_records import (
    DONE,
    QUEUEING,
    ROLLED_BACK,
    RUNNING,
    database,
    drop,
    job,
    job_gone,
    table,
    table_info,
    version,
)
from tistream.schema.base import restated
from tistream.schema.history import History
from tistream.schema.id_set import IdSet
from tistream.schema.log_format import decode_record, encode_record
from tistream.schema.records import Record

END = 20
ACTIONS = (3, 5, 11)  # create table, add column, truncate table


@st.composite
def logs(draw: st.DrawFn) -> list[list[Record]]:
    """Commits of tables, databases, versions and jobs."""
    number, out = 0, []
    for ts, records in enumerate(draw(commits()), start=1):
        more = list(records)
        if draw(st.booleans()):
            number += draw(st.integers(1, 2))
            more.append(version(ts, number))
        if ts > SNAPSHOT_TS and draw(st.integers(0, 2)):
            job_id = draw(st.integers(1, 3))
            state = draw(st.sampled_from([QUEUEING, RUNNING, RUNNING, DONE, ROLLED_BACK, None]))
            fields = {"table_id": draw(st.integers(101, 104)), "existed": draw(st.booleans())}
            action = draw(st.sampled_from(ACTIONS))
            more.append(job_gone(ts, job_id) if state is None else job(ts, job_id, action, state, **fields))
        out.append(more)
    return out


def fed(history: History, committed: list[list[Record]]) -> History:
    for records in committed:
        history.apply(records)
        history.advance(records[0].commit_ts)
    return history


def answers(history: History, base_ts: int) -> list[Any]:
    """All that may be asked for from base_ts on."""
    physical = [*range(101, 105), *range(201, 205), *range(301, 305)]
    out: list[Any] = [[history.ever_had_id(one) for one in range(99, 400)], history.ddl_events(base_ts, END)]
    for ts in range(base_ts, END):
        out += [history.databases(ts), history.schema_version_at(ts), history.schema_version_before(ts + 1)]
        out += [history.tables(ts, name) for name in ("a", "b")]
        out += [history.table_at(one, ts + 1) for one in physical]
        out += [history.versions_of(one, ts, END) for one in physical]
        for name in ("a", "b", "mysql"):
            out += [history.database_exists(name, ts, END), history.tables_named(name, None, ts, END)]
        out.append(history.schema_versions(ts, END))
    return out


def began_at(history: History, records: list[Record], base_ts: int) -> tuple[History, list[Record]]:
    """A history that knows nothing but a base and what follows, and all its records; they pass through the log."""
    early = [record for record in records if record.commit_ts <= base_ts]
    kept = [*restated(early, base_ts, history.base(base_ts)), *records[len(early) :]]
    kept = [decode_record(encode_record(record)) for record in kept]
    out = History(history.snapshot_ts)
    out.apply(kept)
    out.forget(base_ts)
    return out, kept


@settings(max_examples=examples(200), deadline=None)
@given(logs(), st.integers(1, 12), st.integers(0, 5), st.integers(0, 12))
def test_no_answer_from_the_base_on_changes(
    committed: list[list[Record]], base_ts: int, further: int, known: int
) -> None:
    base_ts = min(base_ts, len(committed))
    later_ts = min(base_ts + further, len(committed))
    whole = fed(History(SNAPSHOT_TS), committed)
    # One that forgets in the middle of its life, once or twice.
    known = max(base_ts, min(known, len(committed)))
    forgetful = fed(History(SNAPSHOT_TS), committed[:known])
    forgetful.forget(base_ts)
    fed(forgetful, committed[known:])
    assert answers(forgetful, base_ts) == answers(whole, base_ts)
    # One that begins at a base, and one that begins at a base of that.
    records = [record for one in committed for record in one]
    begun, kept = began_at(whole, records, base_ts)
    assert answers(begun, base_ts) == answers(whole, base_ts)
    again, _ = began_at(begun, kept, later_ts)
    assert answers(again, later_ts) == answers(whole, later_ts)
    forgetful.forget(later_ts)
    assert answers(forgetful, later_ts) == answers(whole, later_ts)


def test_a_job_that_was_told_before_the_base_is_not_told_again_after_it() -> None:
    records = [
        database(1, 1, "d"),
        table(1, 1, table_info(100, "t", ["id"])),
        job(2, 7, 5, QUEUEING, table_id=100),
        table(3, 1, table_info(100, "t", ["id", "v"])),
        job(3, 7, 5, RUNNING, table_id=100),
        job(4, 8, 5, RUNNING, table_id=100, existed=False),
        job(5, 7, 5, RUNNING, table_id=100),
        job(9, 7, 5, DONE, table_id=100),
        job(9, 8, 5, DONE, table_id=100),
    ]
    whole = History(1)
    whole.apply(records)
    begun, _ = began_at(whole, records, 6)
    assert [event.job_id for event in whole.ddl_events(6, 20)] == [8]
    assert begun.ddl_events(6, 20) == whole.ddl_events(6, 20)


def test_what_was_dropped_is_not_restated_and_what_moved_is_where_it_is() -> None:
    records = [
        *(database(1, 1, "d"), database(1, 2, "e"), database(1, 3, "gone")),
        *(table(1, 1, table_info(100, "t")), table(1, 1, table_info(101, "u")), version(1, 3)),
        *(drop(2, 1, 100), database(2, 3, None), version(2, 4)),
        *(drop(3, 1, 101), table(3, 2, table_info(101, "u"))),
    ]
    whole = History(1)
    whole.apply(records)
    begun, kept = began_at(whole, records, 5)
    assert len(kept) == 2 + 2 + 1  # what jobs and ids had come to, the version; two databases; a table
    for found in (whole, begun):
        assert found.databases(5) == ["d", "e"]
        assert found.tables(5, "d") == []
        assert [one.table_id for one in found.tables(5, "e") or ()] == [101]
        assert (found.schema_version_at(5), found.ever_had_id(100), found.ever_had_id(102)) == (4, True, False)


def test_endless_ddl_leaves_little_behind() -> None:
    history, ts = History(1), 1
    history.apply([database(1, 1, "d")])
    sizes = []
    for round_ in range(40):
        for _ in range(25):  # a table is truncated: its id is another one
            ts += 1
            records = [table(ts, 1, table_info(1_000 + ts, "t", partitions=[5_000 + ts])), version(ts, ts)]
            history.apply([*records, drop(ts, 1, 999 + ts), job(ts, ts, 11, DONE, table_id=1_000 + ts)])
            ts += 1
            history.apply([job_gone(ts, ts - 1)])
            ts += 1
            history.apply([drop(ts, 1, 998 + ts)])
        history.advance(ts)
        history.forget(ts - 10)
        if round_ in (1, 39):
            lines = (history._versions, history._owners, history._database_versions)
            sizes.append([*map(len, lines), len(history._events), len(history._names._closed)])
            assert history.tables(ts, "d") == []
            assert history.ever_had_id(1_002)
    assert sizes[0] == sizes[1]
    assert max(sizes[0]) <= 12


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=40), max_size=8))
def test_ids_are_all_there_and_no_others(groups: list[list[int]]) -> None:
    ids, wanted = IdSet(), set()
    for group in groups:
        ids.update(group)
        wanted |= set(group)
    assert list(ids) == sorted(wanted)
    assert all(one in ids for one in wanted)
    assert not any(one in ids for group in groups for one in (one + 1 for one in group) if one not in wanted)


@pytest.mark.parametrize("step", [1, 3])
def test_many_ids_are_packed_and_still_there(step: int) -> None:
    ids = IdSet()
    for start in range(0, 30_000, 100):
        ids.update(range(start, start + 100, step))
    wanted = {one for start in range(0, 30_000, 100) for one in range(start, start + 100, step)}
    assert list(ids) == sorted(wanted)
    assert len(ids._recent) < len(wanted) / 2
    assert [one in ids for one in range(300)] == [one in wanted for one in range(300)]
    assert 30_001 not in ids
