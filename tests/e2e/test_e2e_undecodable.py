"""A row that no schema decodes stops the pulls that include it, visibly, and no other."""

from __future__ import annotations

from typing import Any

from support import golden
from support.change_files import Row
from support.compare import concerns, content, names
from support.faults import replaced, with_row
from support.golden import GoldenSet
from support.platform import Platform
from support.pull import Consumer, Event, Refused
from support.pulled import Pulled

GARBAGE = b"\x7fgarbage"  # of no known row format
ONE_INT = b"\x80\x00\x01\x00\x00\x00\x01\x01\x00\x05"  # a sound row: column 1 is 5
ORDERS = 156  # shop.orders, which no DDL touches after its creation
UNNAMED_KEY = b"t" + (2**63 + 987_654).to_bytes(8, "big") + b"_r" + (2**63 + 1).to_bytes(8, "big")


def pull_until_refused(consumer: Consumer, loaded: GoldenSet, *scope: str) -> tuple[list[Event], Refused]:
    """Everything before the refusal, and the refusal."""
    events: list[Event] = []
    try:
        query = {"start_ts": loaded.snapshot_ts, "limit": 100_000}
        for page in consumer.pages(*scope, until_ts=loaded.end_ts, query=query):
            events += [*page.events, page.end]
    except Refused as refused:
        return events, refused
    raise AssertionError("the whole range was answered")


def check_refusal(refused: Refused, row: Row) -> dict[str, Any]:
    """422, with the key and a reason."""
    assert refused.status == 422, refused
    text = str(refused.problem)
    assert row["key"].hex() in text.lower(), text
    assert refused.problem["detail"]
    return refused.problem


def test_a_garbled_row_stops_its_table_only(up: Platform, whole: Pulled) -> None:
    sound = whole.events
    loaded = golden.load_as("everything", "9", "garbled")
    file, row = with_row(loaded, GARBAGE, table_id=ORDERS)
    golden.push([loaded.schema_snap, *replaced(loaded.files, file.key, lambda data: file.data)], up.objects)
    consumer = up.create_for(loaded)
    consumer.wait_for(loaded.end_ts)

    events, refused = pull_until_refused(consumer, loaded)
    problem = check_refusal(refused, row)
    last = events[-1]
    assert last["type"] == "resolved"
    assert int(last["resolved_ts"]) == row["commit_ts"] - 1
    want = [e for e in sound if "commit_ts" in e and int(e["commit_ts"]) < row["commit_ts"]]
    assert content(events) == content(want)

    refused_tables = []
    for database, table in sorted(names(sound)[1]):
        want_table = content(e for e in sound if concerns(e, database, table))
        try:
            query = {"start_ts": loaded.snapshot_ts, "limit": 100_000}
            got = [
                e for page in consumer.pages(database, table, until_ts=loaded.end_ts, query=query) for e in page.events
            ]
            assert content(got) == want_table
        except Refused as error:
            check_refusal(error, row)
            refused_tables.append((database, table))
    assert len(refused_tables) == 1, refused_tables
    assert refused_tables[0][1] in str(problem)

    # beyond the row, all goes on
    above = consumer.page(start_ts=row["commit_ts"], limit=100_000)
    assert content(above.events) == content(
        e for e in sound if "commit_ts" in e and int(e["commit_ts"]) > row["commit_ts"]
    )


def test_a_row_of_a_table_that_no_schema_ever_named(up: Platform) -> None:
    loaded = golden.load_as("large", "9", "unnamed")
    file, row = with_row(loaded, ONE_INT, key=UNNAMED_KEY)
    golden.push([loaded.schema_snap, *replaced(loaded.files, file.key, lambda data: file.data)], up.objects)
    consumer = up.create_for(loaded)
    consumer.wait_for(loaded.end_ts)
    events, refused = pull_until_refused(consumer, loaded)
    check_refusal(refused, row)
    assert int(events[-1]["resolved_ts"]) == row["commit_ts"] - 1
    got = consumer.pull("wide", until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    assert content(got)
