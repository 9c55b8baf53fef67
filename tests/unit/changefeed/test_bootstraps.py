"""A reader of the simple protocol has the schema of each row before the row, in every partition, and again in time."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from support.feed_batches import golden_window
from support.feed_tables import Key, column, version
from support.pull_world import golden_world
from tistream.read.cursor import Position, Scope
from tistream.read.events import Events
from tistream.read.scan import Scan
from tistream.schema.tidb import table as t
from tistream.schema.visible import TableVersion
from tistream_changefeed.core.outgoing import SentMessage
from tistream_changefeed.core.segments import segments
from tistream_changefeed.hold.sink import Pipeline
from tistream_changefeed.protocols.simple.bootstraps import BootstrapRule, Bootstraps
from tistream_changefeed.rows.handle_key import eligible
from tistream_changefeed.sinks.kafka.feed_settings import parsed

PARTITIONS = 3
URI = "kafka://b:9092/t?protocol=simple"


def table(name: str = "t", table_id: int = 100, columns: int = 1) -> TableVersion:
    keyed = [column("id", flag=t.FLAG_NOT_NULL | t.FLAG_PRIMARY), *(column(f"c{at}") for at in range(columns))]
    return version(keyed, [Key("p", ("id",), primary=True)], name=name, table_id=table_id, pk_is_handle=True)


def test_a_schema_is_sent_before_the_first_row_and_again_after_rows_and_after_time() -> None:
    sent = Bootstraps(BootstrapRule(interval_ms=1_000, rows=4))
    assert sent.before(table(), np.arange(10)) == [0, 4, 8]
    assert sent.before(table(), np.arange(10, 13)) == [2]  # the fourth row since
    assert sent.before(table(), np.array([1_011, 1_012, 1_013])) == [1]
    assert sent.before(table(), np.array([5_000, 5_001])) == [0]


def test_a_new_version_and_another_table_have_schemas_of_their_own() -> None:
    sent = Bootstraps(BootstrapRule())
    assert sent.before(table(), np.array([1, 2])) == [0]
    assert sent.before(table(), np.array([3])) == []
    assert sent.before(table("u", 101), np.array([3])) == [0]
    assert sent.before(table(columns=2), np.array([4, 5])) == [0]
    assert sent.before(table(columns=2), np.array([6])) == []


@pytest.mark.parametrize("rule", [BootstrapRule(interval_ms=0), BootstrapRule(rows=-1)])
def test_an_interval_or_a_count_that_is_not_above_zero_sends_no_schema(rule: BootstrapRule) -> None:
    assert Bootstraps(rule).before(table(), np.arange(3)) == []


# --- over the golden set -------------------------------------------------------------------------------------------


def sent_by(pipeline: Pipeline, part_rows: int, start_ts: int | None = None) -> list[SentMessage]:
    """All messages above a ts (None: of the whole set), in windows of so many rows."""
    world = golden_world("everything")
    at, scope = Position(start_ts or world.snapshot_ts), Scope(world.tenant)
    out: list[SentMessage] = []
    for marks in pipeline.opened(at.commit_ts, lambda ts: world.source.tables_at(ts, scope), lambda _: PARTITIONS):
        out += marks
    scan = Scan(world.source, scope, at, world.end_ts, world.budget, numbered=True, moving=pipeline.splitting)
    for read in scan.batches():
        for segment in segments(read.events, at, read.through):
            out += rows_of(pipeline, segment.rows, part_rows)
            if segment.ddl is not None:
                out += pipeline.ddl(segment.ddl, world.source.table, lambda _: PARTITIONS)
            at = segment.rows_end
    return out


def rows_of(pipeline: Pipeline, events: Events, part_rows: int) -> list[SentMessage]:
    encoded = pipeline.rows(events, lambda _: PARTITIONS)
    out: list[SentMessage] = []
    for start in range(0, len(encoded.messages), part_rows):
        part = encoded.messages.between(start, min(start + part_rows, len(encoded.messages)))
        out += encoded.framed(part).each()
    return out


def said(one: SentMessage) -> dict[str, Any]:
    assert one.value is not None
    found: dict[str, Any] = json.loads(one.value)
    return found


@pytest.fixture(scope="module")
def everything() -> list[SentMessage]:
    return sent_by(parsed(URI, {"sink": {"send-bootstrap-in-msg-count": 100}}).pipeline(), 700)


def test_each_row_has_its_schema_before_it_in_its_partition(everything: list[SentMessage]) -> None:
    known: set[tuple[int, str, str, int]] = set()
    rows = 0
    for one in everything:
        message = said(one)
        if message["type"] == "BOOTSTRAP":
            shown = message["tableSchema"]
            known.add((one.partition, shown["schema"], shown["table"], shown["version"]))
        elif "schemaVersion" in message:
            assert (one.partition, message["database"], message["table"], message["schemaVersion"]) in known
            rows += 1
    assert rows == 10_368 - 24  # of tables without a key


def test_a_schema_is_sent_to_every_partition_at_least_each_hundred_rows(everything: list[SentMessage]) -> None:
    since: Counter[tuple[str, str]] = Counter()
    for at, one in enumerate(everything):
        message = said(one)
        if message["type"] == "BOOTSTRAP":
            shown = message["tableSchema"]
            group = everything[at - one.partition : at - one.partition + PARTITIONS]
            assert [(other.partition, other.value) for other in group] == [(n, one.value) for n in range(PARTITIONS)]
            since[shown["schema"], shown["table"]] = 0
        elif "schemaVersion" in message:
            since[message["database"], message["table"]] += 1
            assert since[message["database"], message["table"]] <= 100


def test_schemas_go_to_the_first_partition_alone_and_all_at_the_start_if_it_is_set() -> None:
    options = {"send-bootstrap-to-all-partition": False, "send-all-bootstrap-at-start": True}
    pipeline = parsed(URI, {"sink": options}).pipeline()
    world = golden_world("everything")
    start_ts = golden_window().ddl[60].commit_ts
    whole = sent_by(pipeline, 700, start_ts)
    assert {one.partition for one in whole if said(one)["type"] == "BOOTSTRAP"} == {0}
    tables = world.source.tables_at(start_ts, Scope(world.tenant))
    expected = [list(one.name) for one in tables if eligible(one.table)]
    assert 10 < len(expected) < len(tables)
    begun = [said(one)["tableSchema"] for one in whole[: len(expected)]]
    assert [[one["schema"], one["table"]] for one in begun] == expected
    again = sent_by(pipeline, 700, start_ts)  # another holder: what was sent before may have been aborted
    assert again == whole
