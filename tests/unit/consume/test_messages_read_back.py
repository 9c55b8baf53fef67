"""TiCDC's own messages of the golden set, read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support import golden_kafka
from tistream.consume import canal_json, open_protocol
from tistream.consume.feed_events import DdlEvent, Malformed, ResolvedEvent, Row, RowEvent, ValueKind
from tistream.consume.source_url import Decode

WORD = 8


def framed(*pieces: bytes) -> bytes:
    return b"".join(len(one).to_bytes(WORD) + one for one in pieces)


def open_message(line: dict[str, Any]) -> list[Any]:
    key = (1).to_bytes(WORD) + framed(line["k"].encode())
    return open_protocol.decode(key, framed(line.get("v", "").encode()))


def rows_of(name: str) -> Iterator[tuple[int, RowEvent]]:
    for number, line in golden_kafka.row_messages(name).items():
        value = golden_kafka.value_of(line)
        (event,) = open_message(line) if name == "open" else canal_json.decode(None, value)
        assert isinstance(event, RowEvent)
        yield number, event


def comparable(row: Row | None) -> dict[str, Any] | None:
    """A row's values without what the two protocols write in different forms: floats are text in canal-json."""
    if row is None:
        return None
    return {name: _comparable(value) for name, value in row.items()}


def _comparable(value: Any) -> Any:
    if isinstance(value, bytes | str):
        try:
            return float(value)
        except ValueError:
            return value if isinstance(value, bytes) else value.encode()
    return None if value is None else float(value)


def test_both_protocols_say_the_same_of_every_row() -> None:
    canal = dict(rows_of("canal_tidb"))
    count = 0
    for number, one in rows_of("open"):
        other = canal[number]
        assert (one.commit_ts, one.name) == (other.commit_ts, other.name)
        assert comparable(one.new) == comparable(other.new), (number, one.name)
        assert comparable(one.old) == comparable(other.old), (number, one.name)
        count += 1
    assert count == len(canal) > 10_000


def test_events_are_those_that_ticdc_encoded() -> None:
    ops = {(True, False): "insert", (True, True): "update", (False, True): "delete"}
    for number, one in rows_of("open"):
        event = golden_kafka.events()[number]
        shape = (one.new is not None, one.old is not None)
        assert (ops[shape], one.commit_ts, one.database, one.table) == (
            event["op"], event["commit_ts"], event["schema"], event["table"],
        )  # fmt: skip
        assert sorted(one.key) == sorted(event["handle_key"] or [])


def test_unchanged_columns_that_were_left_out_are_filled_in() -> None:
    whole = dict(rows_of("canal_tidb"))
    for number, one in rows_of("canal_compat"):
        assert (one.new, one.old) == (whole[number].new, whole[number].old)


def test_ddls_and_resolved_ts() -> None:
    for line in golden_kafka.other_messages("open", "ddl"):
        (event,) = open_message(line)
        head, body = json.loads(line["k"]), json.loads(line["v"])
        assert event == DdlEvent(golden_kafka.events()[line["i"]]["commit_ts"], head["scm"], head["tbl"], body["q"])
    for name in ("open", "canal_tidb"):
        for line in golden_kafka.other_messages(name, "resolved"):
            (event,) = open_message(line) if name == "open" else canal_json.decode(None, golden_kafka.value_of(line))
            assert isinstance(event, ResolvedEvent)
            assert event.ts > 1 << 58


def test_a_batch_has_several_events() -> None:
    lines = list(golden_kafka.row_messages("open").values())[:3]
    key = (1).to_bytes(WORD) + framed(*(one["k"].encode() for one in lines))
    events = open_protocol.decode(key, framed(*(one["v"].encode() for one in lines)))
    assert events == [open_message(one)[0] for one in lines]


def test_kinds_of_values() -> None:
    columns = {"e": {"t": 247, "v": 2}, "b": {"t": 16, "v": 5}, "big": {"t": 8, "v": 2**63}, "j": {"t": 245, "v": "[]"}}
    value = json.dumps({"u": {**columns, "bin": {"t": 15, "f": 1, "v": '\\x00é\\"\\n'}}})
    (event,) = open_message({"k": '{"ts":1,"scm":"d","tbl":"t","t":1}', "v": value})
    assert event.kinds == {
        "e": ValueKind.NUMBER_OF_NAME, "b": ValueKind.BITS, "big": ValueKind.WIDE, "j": ValueKind.JSON,
    }  # fmt: skip
    assert event.new["bin"] == b'\x00\xc3\xa9"\n'


KEY = (1).to_bytes(WORD)
ROW_KEY = KEY + framed(b'{"ts":1,"scm":"d","tbl":"t","t":1}')


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, None, "version 1"),
        ((2).to_bytes(WORD), b"", "version 1"),
        (KEY + b"\0\0", b"", "ends inside an event"),
        (KEY + (9).to_bytes(WORD) + b"{}", b"", "ends inside an event"),
        (ROW_KEY, b"", "1 keys and 0 values"),
        (KEY + framed(b"["), framed(b"{}"), "no JSON"),
        (KEY + framed(b"[]"), framed(b"{}"), "no JSON object"),
        (KEY + framed(b'{"t":1}'), framed(b"{}"), "without its ts"),
        (KEY + framed(b'{"ts":1,"t":9}'), framed(b"{}"), "type 9"),
        (ROW_KEY, framed(b"{}"), "d.t without columns"),
        (ROW_KEY, framed(b'{"u":{"c":{"t":252,"v":"!"}}}'), "column c"),
        (ROW_KEY, framed(b'{"u":{"c":5}}'), "column c of d.t has no type"),
        (KEY + framed(b'{"ts":1,"scm":"d","tbl":"t","t":1,"ohk":true}'), framed(b"{}"), "max-message-bytes"),
    ],
)
def test_messages_that_are_not_of_the_open_protocol(key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        open_protocol.decode(key, value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no JSON"),
        (b"[1]", "_tidb"),
        (b'{"type":"INSERT"}', "enable-tidb-extension=true"),
        (b'{"type":"INSERT","_tidb":{}}', "commitTs"),
        (b'{"type":"TIDB_WATERMARK","_tidb":{}}', "watermarkTs"),
        (b'{"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":"soon"}}', "watermarkTs"),
        (b'{"type":"INSERT","database":"d","table":"t","data":null,"_tidb":{"commitTs":1}}', r"d\.t"),
        (b'{"type":"ODD","data":[{}],"_tidb":{"commitTs":1}}', "ODD"),
        (b'{"type":"INSERT","data":[{"c":1}],"_tidb":{"commitTs":1}}', "column c"),
        (b'{"type":"INSERT","_tidb":{"commitTs":1,"onlyHandleKey":true}}', "max-message-bytes"),
    ],
)
def test_messages_that_are_not_of_canal_json(value: bytes | None, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        canal_json.decode(None, value)


def damaged(document: Any) -> Iterator[Any]:
    """The document with one of its values replaced or left out, each in turn."""
    members = document.items() if isinstance(document, dict) else enumerate(document)
    if not isinstance(document, dict | list):
        return
    for at, value in members:
        rest = type(document)(document)
        del rest[at]
        yield rest
        odd = damaged(value) if isinstance(value, dict | list) else ()
        for other in (None, -1, 1.5, True, "x", "é", [], [1], {}, {"x": 1}, *odd):
            changed = type(document)(document)
            changed[at] = other
            yield changed


def accepted(decode: Decode, key: bytes | None, value: bytes) -> bool:
    """Whether a message is decoded; otherwise it must be Malformed."""
    try:
        decode(key, value)
    except Malformed:
        return False
    return True


def test_a_message_with_any_damaged_value_is_malformed_or_harmless() -> None:
    line = next(iter(golden_kafka.row_messages("open").values()))
    head, body = json.loads(line["k"]), json.loads(line["v"])
    columns = body.get("u") or body["d"]
    shown = next(iter(golden_kafka.row_messages("canal_tidb").values()))
    canal = {**json.loads(golden_kafka.value_of(shown)), "type": "UPDATE"}
    canal["old"] = canal["data"]
    heads = [*damaged(head), *damaged({"ts": 1, "t": 4, "n": 1})]
    rows = [*damaged({"u": columns, "p": columns}), *damaged({"d": columns})]
    messages = [*damaged(canal), *damaged({"type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": 5}})]
    value = framed(line["v"].encode())
    found = [accepted(open_protocol.decode, KEY + framed(json.dumps(one).encode()), value) for one in heads]
    found += [accepted(open_protocol.decode, ROW_KEY, framed(json.dumps(one).encode())) for one in rows]
    found += [accepted(canal_json.decode, None, json.dumps(one).encode()) for one in messages]
    assert min(found.count(True), found.count(False)) > 100
    deep = b"[" * 100_000
    assert not accepted(canal_json.decode, None, deep)
    assert not accepted(open_protocol.decode, KEY + framed(deep), framed(b"{}"))
