"""Messages of open-protocol and canal-json are TiCDC's, byte by byte, but for listed differences."""

from __future__ import annotations

from collections import Counter

import pytest

from support import golden_kafka
from support.feed_batches import FeedWindow, event_keys, golden_window
from tistream_changefeed.protocols.canal_json.encoder import CanalJson, CanalOptions
from tistream_changefeed.protocols.limits import Limit
from tistream_changefeed.protocols.messages import Encoder
from tistream_changefeed.protocols.open_protocol.encoder import OpenOptions, OpenProtocol
from tistream_changefeed.protocols.open_protocol.frames import framed_key, framed_value

SMALL = Limit(600, handle_key_only=True)
EXTENDED = CanalOptions(enable_tidb_extension=True)


def small(*, faults: bool) -> OpenProtocol:
    return OpenProtocol(OpenOptions(True, True, True, faults, SMALL))


NO_HANDLE = {115, 116, 9313, 9419}  # deletes of which TiCDC has no handle key to send, so that its feed stops
# Rows of `busy` between the ts at which SELECT shows a column's new type and the ts at which TiCDC's job is done.
RETYPED = {10_102, 10_700, 10_701, 10_702, 10_703}
NAMELESS = {335}  # an update to NULL, whose old value TiCDC writes without the column's name
CASES: dict[str, tuple[str, Encoder, set[int]]] = {
    "open": ("open", OpenProtocol(OpenOptions()), set()),
    "open with options": ("open_small", small(faults=False), NO_HANDLE | NAMELESS),
    "open with options and faults": ("open_small", small(faults=True), NO_HANDLE),
    "canal": ("canal", CanalJson(CanalOptions()), set()),
    "canal with extension": ("canal_tidb", CanalJson(EXTENDED), set()),
    "canal content-compatible": (
        "canal_compat",
        CanalJson(CanalOptions(enable_tidb_extension=True, content_compatible=True)),
        set(),
    ),
}


@pytest.fixture(scope="module")
def window() -> FeedWindow:
    return golden_window(numbered=True)


def shown_otherwise() -> set[int]:
    """TiCDC's events whose rows are not what SELECT shows: of `busy` while a column is dropped or changed."""
    groups = [line for line in golden_kafka.lines("differs") if not line["why"].startswith("unchanged row")]
    return {number for line in groups for low, high in line["events"] for number in range(low, high + 1)}


def stamped(value: bytes | None, commit_ts: int) -> bytes | None:
    """TiCDC's value with our `ts`, which is the commit's time; the recorded one is 0."""
    return None if value is None else value.replace(b'"ts":0,', b'"ts":%d,' % (commit_ts >> 18), 1)


@pytest.mark.parametrize("case", CASES)
def test_rows_are_ticdcs(case: str, window: FeedWindow) -> None:
    name, encoder, differences = CASES[case]
    theirs, numbers = golden_kafka.row_messages(name), golden_kafka.rows()
    differ: set[int] = set()
    count = 0
    for batch in window.batches:
        found = encoder.rows(batch)
        keys = [None] * len(batch) if found.keys is None else found.keys.to_pylist()
        for event, key, value in zip(event_keys(batch), keys, found.values.to_pylist(), strict=True):
            line = theirs[numbers[event]["i"]]
            their_value = golden_kafka.value_of(line)
            if isinstance(encoder, CanalJson):
                their_value = stamped(their_value, event.commit_ts)
            if (key, value) != (golden_kafka.key_bytes(line), their_value):
                differ.add(line["i"])
            count += 1
    assert count == 10_368
    otherwise = shown_otherwise() | RETYPED
    if name == "open_small":  # its deletes have the handle key alone
        otherwise -= {line["i"] for line in numbers.values() if line["op"] == "delete"}
    assert differ == differences | otherwise


@pytest.mark.parametrize("case", [case for case in CASES if "options" not in case])
def test_ddl_messages_say_what_ticdcs_say(case: str, window: FeedWindow) -> None:
    """Each but for the query, which is the user's, and the ts, which may be earlier. TiCDC splits RENAME TABLES, and
    does not send CREATE SEQUENCE."""
    name, encoder, _ = CASES[case]
    hidden = {line["i"]: line["query"] for line in golden_kafka.events() if line["type"] == "ddl"}
    renames = {number for number, count in Counter(
        line["i"] for line in golden_kafka.other_messages(name, "ddl")).items() if count > 1}  # fmt: skip
    theirs = [line for line in golden_kafka.other_messages(name, "ddl") if line["i"] not in renames]
    ours = [event for event in window.ddl if event.action not in ("rename tables", "create sequence")]
    assert (len(theirs), len(ours), len(hidden)) == (103, 103, 104)
    for event, line in zip(ours, theirs, strict=True):
        message = encoder.ddl(event)
        assert message is not None
        assert message.every_partition == (name == "open")
        (their_ts,) = (one["commit_ts"] for one in golden_kafka.events()[line["i"] : line["i"] + 1])
        assert event.commit_ts <= their_ts
        key, value = golden_kafka.key_bytes(line), golden_kafka.value_of(line)
        assert value is not None
        expected = retold(value, line["v"], event.query)
        if key is None:
            expected = stamped(restamped(expected, their_ts, event.commit_ts), event.commit_ts) or b""
            assert (message.key, message.value) == (None, expected)
        else:
            key = restamped(key, their_ts, event.commit_ts)
            assert (message.key, message.value) == (framed_key(key), framed_value(expected))


def retold(value: bytes, text: str, query: str) -> bytes:
    """TiCDC's value with the user's query."""
    start = text.index('"q":') + 4 if text.startswith('{"q":') else text.index('"sql":') + 6
    end = start + 1
    while text[end] != '"':
        end += 2 if text[end] == "\\" else 1
    assert text.encode() == value
    quoted = query.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'{text[:start]}"{quoted}{text[end:]}'.encode()


def restamped(data: bytes, before: int, after: int) -> bytes:
    return data.replace(b"%d" % before, b"%d" % after).replace(b"%d" % (before >> 18), b"%d" % (after >> 18))


@pytest.mark.parametrize("case", ["open", "canal", "canal with extension", "canal content-compatible"])
def test_resolved_messages_are_ticdcs(case: str) -> None:
    name, encoder, _ = CASES[case]
    lines = golden_kafka.other_messages(name, "resolved")
    ends = {line["i"]: line["commit_ts"] for line in golden_kafka.events()}
    ends[golden_kafka.lines("events")[-1]["i"]] = golden_kafka.lines("events")[-1]["commit_ts"]
    assert len(lines) == 105
    for line in lines:
        ts = ends[line["i"]]
        message = encoder.resolved(ts)
        if "none" in line:
            assert message is None
            continue
        assert message is not None
        assert message.every_partition
        key, value = golden_kafka.key_bytes(line), golden_kafka.value_of(line)
        if key is None:
            assert (message.key, message.value) == (None, stamped(value, ts))
        else:
            assert value == b""
            assert (message.key, message.value) == (framed_key(key), framed_value(b""))
