"""Every protocol through a real Kafka, in the soak with every dispatcher and codec option too: a consumer that is not
ours reads what TiCDC would have sent. Without Kafka, tests/unit/changefeed compares all of them.

Compared are the messages of rows, byte by byte, with the partition of each, and their order in each partition. Rows in
which TiCDC differs from SELECT are listed, and nothing else may differ.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pytest

from support import golden_kafka
from support.effort import cases
from support.feed_run import finish, holder_of
from support.kafka import committed, committed_of
from support.pull_world import golden_world
from support.schema_registry import Registry, registry
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_changefeed.registry.confluent import ConfluentRegistry
from tistream_changefeed.sinks.claim_check import ClaimFiles
from tistream_cli.platform.local_kafka import LocalKafka

PARTITIONS = 3
ROWS = 10_368  # that SELECT shows
Pair = tuple[bytes | None, bytes | None]
# Rows of `busy` between the ts at which SELECT shows a column's new type and the ts at which TiCDC's job is done.
RETYPED = frozenset({10_102, 10_700, 10_701, 10_702, 10_703})
TIMES = re.compile(rb'("ts":|\},"ts_ms":|"buildTs":)\d+')  # of encoding in TiCDC, of the commit here
VIRTUAL = b',{"type":"string","optional":true,"field":"label"}'  # of a virtual column, whose values are in no message
VERSION = re.compile(rb'"schemaVersion":\d+')


@dataclass(frozen=True)
class Case:
    """A configuration, and the golden file with what TiCDC makes of it."""

    golden: str
    protocol: str
    options: Mapping[str, Any]
    dispatcher: str = "table"

    @property
    def name(self) -> str:
        return f"{self.golden}-{self.dispatcher}".replace("_", "-").replace(":", "-")


COMPATIBLE = {"tistream": {"compatible": "ticdc"}}
EXTENDED = {"sink": {"kafka-config": {"codec-config": {"enable-tidb-extension": True}}}}


def with_(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """These documents in one."""
    out: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            out[name] = with_(out.get(name, {}), value) if isinstance(value, Mapping) else value
    return out


FEW = [
    Case("open", "open-protocol", {}, "index-value:NAME"),
    Case("canal_tidb", "canal-json", EXTENDED),
    Case("debezium", "debezium", COMPATIBLE, "index-value"),
    Case("simple", "simple", {}, "index-value"),
]
REST = [
    *(Case("open", "open-protocol", {}, rule) for rule in ("table", "ts", "index-value", "columns:last")),
    Case("canal", "canal-json", {}, "index-value"),
    Case("canal_compat", "canal-json", with_(EXTENDED, {"sink": {"content-compatible": True}})),
    Case("debezium_tidb", "debezium", with_(EXTENDED, {"sink": {"debezium-disable-schema": True}}, COMPATIBLE)),
]


def own_rules(rule: str) -> dict[tuple[str, str], str]:
    """What each table is dispatched by, of those of which it is the same in all rows: the name of a unique index, or
    the last column."""
    found: dict[tuple[str, str], set[str]] = {}
    messages = golden_kafka.row_messages("open")
    for event in golden_kafka.rows().values():
        if rule == "columns:last":
            columns = next(iter(json.loads(messages[event["i"]]["v"]).values()))
            names = {list(columns)[-1]}
        else:
            names = {one.partition(":")[2] for one in event["partitions"] if one.startswith("index-value:")}
        of = (event["schema"], event["table"])
        found[of] = names if of not in found else found[of] & names if rule != "columns:last" else found[of] | names
    one = {of: sorted(names)[0] for of, names in found.items() if names and (rule != "columns:last" or len(names) == 1)}
    return {of: name for of, name in one.items() if name != "PRIMARY"}


def dispatching(rule: str) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], str]]:
    """The configuration of a rule, and its name in the golden events for each of them."""
    entries: list[dict[str, Any]] = []
    own: dict[tuple[str, str], str] = {}
    if ":" in rule:
        own = own_rules(rule)
        assert len(own) > 2
        for (schema, table), name in own.items():
            how = {"columns": [name]} if rule == "columns:last" else {"index": name}
            entries.append({"matcher": [f'"{schema}"."{table}"'], "partition": rule.partition(":")[0], **how})
    entries.append({"matcher": ["*.*"], "partition": "table" if ":" in rule else rule})

    def of(event: Mapping[str, Any]) -> str:
        name = own.get((event["schema"], event["table"]))
        if name is None:
            return "table" if ":" in rule else rule
        return rule if rule == "columns:last" else f"index-value:{name}"

    return {"sink": {"dispatchers": entries}, "force-replicate": True}, of


@pytest.mark.parametrize("case", cases(FEW, REST), ids=lambda case: case.name)
def test_a_consumer_reads_what_ticdc_would_have_sent(broker: LocalKafka, case: Case) -> None:
    topic = f"protocols-{case.name}"
    uri = f"kafka://{broker.address}/{topic}?protocol={case.protocol}&partition-num={PARTITIONS}&max-batch-size=1"
    document, rule_of = dispatching(case.dispatcher)
    holder = holder_of(golden_world("everything"), uri, with_(document, case.options), case.name)
    finish(holder)
    assert holder.shard.acked is not None
    assert holder.shard.acked.rows == ROWS
    seen = committed(broker.address, topic)
    compare(case, {number: [message[1:] for message in messages] for number, messages in seen.items()}, rule_of)


def compare(case: Case, ours: Mapping[int, Sequence[Pair]], rule_of: Callable[[Mapping[str, Any]], str]) -> None:
    """Compare the rows of a topic with TiCDC's."""
    lines = golden_kafka.row_messages(case.golden)
    framing = framed if case.protocol == "open-protocol" else plain
    theirs: dict[int, list[tuple[int, Pair]]] = {number: [] for number in range(PARTITIONS)}
    for event in in_order(golden_kafka.events()):
        line = lines[event["i"]]
        partition = event["partitions"][rule_of(event)][0]
        if "error" not in line:
            pair = framing(golden_kafka.key_bytes(line), golden_kafka.value_of(line))
            theirs[partition].append((event["i"], normal(case, pair)))
    assert sum(map(len, theirs.values())) > 10_000
    differ: set[int] = set()
    for number, expected in theirs.items():
        found = [normal(case, pair) for pair in ours[number]]
        both = Counter(found) & Counter(pair for _, pair in expected)
        differ |= {i for i, pair in expected if pair not in both}
        # What both have stands in one order
        assert [pair for pair in found if pair in both] == [pair for _, pair in expected if pair in both], number
    assert differ <= shown_otherwise() | RETYPED


def in_order(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """TiCDC's rows in the order in which a feed sends them; that of each table stays."""
    rows = [event for event in events if event["type"] == "row"]
    return sorted(rows, key=lambda event: (event["commit_ts"], event["start_ts"], event["table_id"]))


def shown_otherwise() -> set[int]:
    """TiCDC's events whose rows are not what SELECT shows."""
    return {
        number
        for line in golden_kafka.lines("differs")
        for low, high in line["events"]
        for number in range(low, high + 1)
    }


def plain(key: bytes | None, value: bytes | None) -> Pair:
    return key, value


def framed(key: bytes | None, value: bytes | None) -> Pair:
    """A message of open-protocol with one event."""
    assert key is not None
    assert value is not None
    return (1).to_bytes(8) + len(key).to_bytes(8) + key, len(value).to_bytes(8) + value


def normal(case: Case, pair: Pair) -> Pair:
    """A message without what depends on the time and the order in which TiCDC encodes."""
    key, value = pair
    if value is None:
        return pair
    if case.protocol != "open-protocol":
        value = TIMES.sub(rb"\g<1>0", value)
    if case.protocol == "debezium":
        value = value.replace(VIRTUAL, b"")
    if case.protocol == "simple":
        value = VERSION.sub(b"", value)  # SELECT shows some versions earlier
    return key, value


def test_large_messages_are_in_files_that_a_consumer_finds(broker: LocalKafka) -> None:
    """A reader that puts the content of each file in the place of its message has what TiCDC would have sent."""
    files = MemoryObjectStore()
    place = "s3://bucket/large"
    large = {"large-message-handle-option": "claim-check", "claim-check-storage-uri": place}
    document, rule_of = dispatching("table")
    document = with_(document, {"sink": {"kafka-config": {"large-message-handle": large}}})
    topic = "protocols-claims"
    uri = (
        f"kafka://{broker.address}/{topic}?protocol=open-protocol&partition-num={PARTITIONS}&max-batch-size=1"
        "&max-message-bytes=1000&compression=zstd"
    )
    finish(holder_of(golden_world("everything"), uri, document, topic, claims=ClaimFiles(files, place)))
    found = 0

    def whole(key: bytes | None, value: bytes | None) -> Pair:
        nonlocal found
        assert key is not None
        location = json.loads(key[16:]).get("ccl")
        if location is None:
            return key, value
        found += 1
        content = json.loads(files.get(location.removeprefix(f"{place}/")))
        return base64.b64decode(content["key"]), base64.b64decode(content["value"])

    seen = committed(broker.address, topic)
    ours = {number: [whole(key, value) for _, key, value in messages] for number, messages in seen.items()}
    compare(Case("open", "open-protocol", {}), ours, rule_of)
    assert found > 10
    assert len(list(files.list_after(""))) == found


# --- avro ----------------------------------------------------------------------------------------------------------

TEXTS = {"avro-decimal-handling-mode": "string", "avro-bigint-unsigned-handling-mode": "string"}


@pytest.mark.parametrize(
    ("golden", "rules", "codec"),
    cases(
        [("avro_tidb", ["*.*", "!shop.busy"], {"enable-tidb-extension": True, **TEXTS})],
        [("avro", ["types.*", "shop.orders"], {})],
    ),
)
def test_avro_is_read_with_the_schemas_of_the_registry(
    broker: LocalKafka, golden: str, rules: list[str], codec: dict[str, Any]
) -> None:
    """Each table has a topic, as TiCDC demands it. Rows of `busy` are left out: its schema changes incompatibly."""
    with registry() as server:
        server.compatible = False
        document = {
            "filter": {"rules": rules},
            "sink": {
                "schema-registry": server.url,
                "dispatchers": [{"matcher": ["*.*"], "topic": golden + "_{schema}_{table}"}],
                "kafka-config": {"codec-config": codec},
            },
        }
        uri = f"kafka://{broker.address}/{golden}-rest?protocol=avro&partition-num=1"
        client = ConfluentRegistry(server.url)
        holder = holder_of(golden_world("everything"), uri, document, golden, client)
        finish(holder)
        client.close()
    assert holder.shard.acked is not None
    tables = sorted(topic for topic in holder.shard.acked.topics if topic != f"{golden}-rest")
    assert len(tables) > (30 if golden == "avro_tidb" else 1)
    lines = golden_kafka.row_messages(golden)
    eligible = [event for event in in_order(golden_kafka.events()) if event["eligible"]]
    ids = {(line["subject"], line["schema"]): line["id"] for line in golden_kafka.lines("avro_schemas")}
    differ, decoded = set[int](), 0
    read = committed_of(broker.address, *tables)
    for topic in tables:
        found = [message[1:] for message in read[topic][0]]
        decoded += sum(read_whole(server, text) for pair in found for text in pair)
        shown = [
            (known(server, ids, f"{topic}-key", one), known(server, ids, f"{topic}-value", other))
            for one, other in found
        ]
        expected = [
            (event["i"], (golden_kafka.key_bytes(lines[event["i"]]), golden_kafka.value_of(lines[event["i"]])))
            for event in eligible
            if topic == f"{golden}_{event['schema']}_{event['table']}" and "error" not in lines[event["i"]]
        ]
        both = Counter(shown) & Counter(pair for _, pair in expected)
        differ |= {i for i, pair in expected if pair not in both}
        assert [pair for pair in shown if pair in both] == [pair for _, pair in expected if pair in both], topic
    assert decoded > holder.shard.acked.rows  # keys and values; a delete has no value
    virtual = {event["i"] for event in golden_kafka.rows().values() if event["table"] == "items"}
    assert differ <= shown_otherwise() | virtual


def test_a_registry_that_is_away_is_tried_again_and_one_that_refuses_a_schema_stops_the_table(
    broker: LocalKafka,
) -> None:
    with registry() as server:
        server.failing = 1
        document = {
            "filter": {"rules": ["shop.busy"]},
            "sink": {
                "schema-registry": server.url,
                "dispatchers": [{"matcher": ["*.*"], "topic": "refused_{schema}_{table}"}],
            },
        }
        uri = f"kafka://{broker.address}/refused?protocol=avro&partition-num=1"
        client = ConfluentRegistry(server.url)
        holder = holder_of(golden_world("everything"), uri, document, "refused", client)
        away: list[str] = []
        while holder.shard.phase not in ("failed", "finished") and not holder.report().stopped:
            holder.step()
            failure = holder.shard.failure
            if holder.shard.phase == "retrying":
                assert failure is not None
                away.append(f"{failure.stage}: {failure.reason}")
                holder.shard.retry_at_ms = 0
        holder.stop()
        holder.run()
        client.close()
    assert [one for one in away if one.startswith(f"encode: schema registry {server.url}")]
    assert holder.shard.phase == "running"
    [stopped] = holder.report().stopped
    assert (stopped.database, stopped.table) == ("shop", "busy")
    assert "is not compatible with the registered one" in stopped.reason
    assert stopped.reason.count('"type":"record","name":"busy"') == 2  # both schemas


def known(server: Registry, ids: Mapping[tuple[str, str], int], subject: str, text: bytes | None) -> bytes | None:
    """A message with the id that TiCDC's registry gave to its schema; as it is if that one does not know it."""
    if text is None:
        return None
    schema = next(one for one, number in server.ids.items() if number == int.from_bytes(text[1:5]))
    return text[:1] + ids.get((subject, schema), int.from_bytes(text[1:5])).to_bytes(4) + text[5:]


def read_whole(server: Registry, text: bytes | None) -> int:
    """Decode a message with the schema that it names, to its last byte; 1, or 0 for a null."""
    if text is None:
        return 0
    data = io.BytesIO(text[5:])
    assert (
        fastavro.schemaless_reader(data, fastavro.parse_schema(server.schema_of(int.from_bytes(text[1:5]))), None)
        is not None
    )
    assert not data.read()
    return 1
