"""What TiCDC sends to Kafka for the golden set `everything` (tests/data/golden/kafka/README.md)."""

from __future__ import annotations

import base64
import functools
import json
import lzma
from dataclasses import dataclass
from typing import Any

from support import golden

ROOT = golden.ROOT / "kafka"
Line = dict[str, Any]


@functools.cache
def lines(name: str) -> tuple[Line, ...]:
    """The parsed lines of one file."""
    with lzma.open(ROOT / f"{name}.jsonl.xz", "rt", encoding="utf-8") as file:
        return tuple(json.loads(line) for line in file)


@functools.cache
def events() -> tuple[Line, ...]:
    """All events in TiCDC's order, without the last line; event i is at index i."""
    return lines("events")[:-1]


@dataclass(frozen=True, slots=True)
class EventKey:
    """What names a row event in TiCDC's stream and in ours."""

    commit_ts: int
    start_ts: int
    physical_id: int
    raw: bytes
    op: str  # "insert", "update" or "delete"


@functools.cache
def rows() -> dict[EventKey, Line]:
    """The row events by what names them. There is one event for each."""
    found = [line for line in events() if line["type"] == "row"]
    keyed = {key_of(line): line for line in found}
    assert len(keyed) == len(found)
    return keyed


def key_of(line: Line) -> EventKey:
    """What names the row event of a line."""
    raw = base64.b64decode(line["row_key"])
    return EventKey(line["commit_ts"], line["start_ts"], line["physical_id"], raw, line["op"])


@functools.cache
def row_messages(name: str) -> dict[int, Line]:
    """The messages of rows of a protocol, by event number. `error` in a line: TiCDC cannot encode the row."""
    return {line["i"]: line for line in lines(name) if line.get("kind", "row") == "row"}


@functools.cache
def other_messages(name: str, kind: str) -> tuple[Line, ...]:
    """The messages of a kind (`ddl`, `resolved`, `bootstrap`), in order. A DDL may have several."""
    return tuple(line for line in lines(name) if line.get("kind") == kind)


def value_of(line: Line) -> bytes | None:
    """The value of a message; None: it is null, or there is no message."""
    return _bytes(line, "v")


def key_bytes(line: Line) -> bytes | None:
    """The key of a message; None: it is null."""
    return _bytes(line, "k")


def _bytes(line: Line, name: str) -> bytes | None:
    if name in line:
        text = line[name]
        return None if text is None else str(text).encode()
    return base64.b64decode(line[f"{name}64"]) if f"{name}64" in line else None
