"""DDL messages of debezium and simple say what TiCDC's say: the same kinds, and the table as it is afterwards."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from support import golden_kafka
from support.feed_batches import golden_window
from support.pull_world import golden_world
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.history import History
from tistream.schema.visible import TableVersion, fold
from tistream_changefeed.protocols.debezium.encoder import DebeziumEncoder
from tistream_changefeed.protocols.debezium.options import DebeziumOptions
from tistream_changefeed.protocols.messages import Encoder, Message
from tistream_changefeed.protocols.simple.encoder import SimpleEncoder
from tistream_changefeed.protocols.table_change import TableChange, table_changes

UNPAIRED = ("rename tables", "create sequence", "exchange partition")  # split, not sent, of two tables
# p_x: its rows have the version that removed the partitions. ddl1: the rows of a version are unchanged, so not sent.
SHOWN_OTHERWISE = {"p_x", "ddl1"}
TIMES = ("DATETIME", "TIMESTAMP", "TIME", "YEAR")


@pytest.fixture(scope="module")
def history() -> History:
    return golden_world("everything").history


def changes_of(history: History, event: DdlEvent) -> tuple[TableChange, ...]:
    """The tables of a DDL before and after it."""

    def table_at(ts: int, database: str, table: str) -> TableVersion | None:
        found = history.visible_tables(ts, database)
        return next((one for one in found if one.folded == (fold(database), fold(table))), None)

    return table_changes(event, table_at)


def pairs(name: str) -> list[tuple[DdlEvent, dict[str, Any]]]:
    """Our DDLs with TiCDC's messages of them."""
    theirs = golden_kafka.other_messages(name, "ddl")
    split = {number for number, count in Counter(line["i"] for line in theirs).items() if count > 1}
    kept = [
        json.loads(line["v"])
        for line in theirs
        if line["i"] not in split and golden_kafka.events()[line["i"]]["action"] not in UNPAIRED
    ]
    ours = [event for event in golden_window().ddl if event.action not in UNPAIRED]
    assert len(kept) == len(ours) == 102
    return list(zip(ours, kept, strict=True))


def parsed(message: Message | None) -> dict[str, Any]:
    assert message is not None
    assert message.value is not None
    found = json.loads(message.value)
    assert isinstance(found, dict)
    return found


def comparable(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """tableChanges without what TiCDC takes from the text of the DDL: lengths and defaults of times."""
    for change in changes:
        for column in (change["table"] or {}).get("columns", ()):
            if column["typeName"] in TIMES:
                column["length"] = column["defaultValueExpression"] = None
    return changes


def test_debezium_tells_the_tables_that_ticdc_tells(history: History) -> None:
    encoder = DebeziumEncoder(DebeziumOptions(debezium_disable_schema=True, enable_tidb_extension=True))
    differ = Counter[str]()
    for event, theirs in pairs("debezium_tidb"):
        ours = parsed(encoder.ddl(event, changes_of(history, event)))["payload"]
        assert ours["ddl"] == event.query
        assert (ours["databaseName"], ours["source"]["table"]) == (event.database, event.table)
        expected = theirs["payload"]["tableChanges"]
        if comparable(ours["tableChanges"]) != comparable(expected):
            differ[event.action] += 1
    assert differ == {}


def test_simple_tells_the_tables_that_ticdc_tells(history: History) -> None:
    encoder = SimpleEncoder()
    differ = Counter[str]()
    for event, theirs in pairs("simple"):
        ours = parsed(encoder.ddl(event, changes_of(history, event)))
        assert (ours["type"], ours["sql"]) == (theirs["type"], event.query)
        for message in (ours, theirs):
            message.get("tableSchema", {}).pop("version", None)
        if ours.get("tableSchema") != theirs.get("tableSchema"):
            differ[event.action] += 1
    # SELECT shows the partitions gone before TiCDC's job is done, and the table has its new id only then.
    assert differ == {"alter table remove partitioning": 1}


@pytest.mark.parametrize(
    ("name", "encoder"),
    [
        ("debezium_tidb", DebeziumEncoder(DebeziumOptions(debezium_disable_schema=True, enable_tidb_extension=True))),
        ("simple", SimpleEncoder()),
    ],
)
def test_watermarks_are_ticdcs(name: str, encoder: Encoder) -> None:
    lines = golden_kafka.other_messages(name, "resolved")
    assert len(lines) == 105
    for line in lines:
        found = json.loads(line["v"])
        ts = found["commitTs"] if name == "simple" else found["payload"]["source"]["commit_ts"]
        message = encoder.resolved(ts)
        assert message is not None
        built = f'"buildTs":{ts >> 18}' if name == "simple" else f'}},"ts_ms":{ts >> 18}'
        zero = '"buildTs":0' if name == "simple" else '},"ts_ms":0'
        assert message.value == line["v"].replace(zero, built).encode()
        assert message.key == golden_kafka.key_bytes(line)


def test_bootstraps_are_ticdcs_where_the_version_is() -> None:
    theirs = {line["v"] for line in golden_kafka.other_messages("simple", "bootstrap")}
    encoder = SimpleEncoder()
    ours = set()
    for batch in golden_window(numbered=True).batches:
        value = encoder.bootstrap(batch.version).value
        assert value is not None
        ours.add(re.sub(r'"buildTs":\d+', '"buildTs":0', value.decode()))
    assert len(theirs) == 72
    missing = {json.loads(value)["tableSchema"]["table"] for value in theirs - ours}
    assert missing == SHOWN_OTHERWISE


def test_a_ddl_over_several_tables_tells_all_of_them_once(history: History) -> None:
    encoder = DebeziumEncoder(DebeziumOptions(debezium_disable_schema=True, enable_tidb_extension=True))
    theirs = golden_kafka.other_messages("debezium_tidb", "ddl")
    (event,) = [one for one in golden_window().ddl if one.action == "rename tables"]
    split = [
        json.loads(one["v"])["payload"] for one in theirs if golden_kafka.events()[one["i"]]["action"] == event.action
    ]
    ours = parsed(encoder.ddl(event, changes_of(history, event)))["payload"]
    assert len(split) == 3  # TiCDC tells the name in between too, of a swap
    last = {one["id"].partition(",")[2]: one["table"] for part in split for one in comparable(part["tableChanges"])}
    found = {one["id"]: one["table"] for one in comparable(ours["tableChanges"])}
    swapped = ('"shop"."swap1"', '"shop"."swap2"')
    assert found == {f"{old},{new}": last[new] for old, new in (swapped, swapped[::-1])}
    assert ours["ddl"] == event.query


def test_a_table_that_is_exchanged_with_a_partition_goes_on_under_its_name(history: History) -> None:
    (event,) = [one for one in golden_window().ddl if one.action == "exchange partition"]
    own, other = changes_of(history, event)
    assert own.before is not None
    assert own.after is not None
    assert other.before is not None
    assert other.after is not None
    assert own.before.name == own.after.name == (event.database, event.table)
    assert own.before.head.id != own.after.head.id  # it has the partition's
    assert other.before.name == other.after.name
    assert other.before.head.id == other.after.head.id


def test_a_created_a_dropped_and_a_renamed_table_are_told_apart(history: History) -> None:
    seen = Counter[str]()
    for event in golden_window().ddl:
        changes = changes_of(history, event)
        if event.action in ("create table", "drop table", "rename table", "truncate table"):
            (change,) = changes
            there = (change.before is not None, change.after is not None)
            assert there == {"create table": (False, True), "drop table": (True, False)}.get(event.action, (True, True))
            assert change.names[-1] == (event.database, event.table)
            assert (len(set(change.names)) == 2) == (event.action == "rename table")
            seen[event.action] += 1
        if not event.table:
            assert changes == ()
    assert len(seen) == 4
