"""Reads the table, the commit_ts and the key of a row event from its message, for each protocol that has them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tistream_changefeed.config.feed_config import ProtocolConfig

_WORD = 8  # bytes of a length in open-protocol
_ROW, _RESOLVED = 1, 3  # kinds of messages in open-protocol
Pair = tuple[bytes | None, bytes | None]
"""Key and value of one event."""


@dataclass(frozen=True, slots=True)
class MessageHead:
    """The commit_ts, the table and the key that a message states for its row event. `key`: the values of the handle
    key; empty if the message does not mark its columns."""

    commit_ts: int
    database: str
    table: str
    key: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResolvedHead:
    """What a resolved message says: its ts."""

    ts: int


HeadOf = Callable[[Pair], MessageHead | ResolvedHead | None]
"""Reads what an event says about itself. None: it is no row and no resolved ts, such as a DDL. Raises Unreadable."""


class Unreadable(ValueError):
    """Raised for a message that is not of the protocol."""


@dataclass(frozen=True, slots=True)
class MessageReader:
    """Functions that read the messages of a protocol. `events`: the events of one message, each with the key and the
    value that the encoder gave it. `head`: what one event says about itself. `resolves`: whether the topic has resolved
    messages. `keyed`: whether messages mark the columns of the key. `dated`: whether dates and times in the key are
    texts as SELECT shows them. `numbered`: whether values of ENUM, SET and BIT in it are numbers."""

    events: Callable[[Pair], Sequence[Pair]]
    head: HeadOf
    resolves: bool = True
    keyed: bool = True
    dated: bool = True
    numbered: bool = True


def reading(protocol: ProtocolConfig) -> MessageReader | str:
    """Return the functions that read messages of this protocol, or a text that says why its messages cannot be
    compared."""
    name = protocol.protocol
    if name == "open-protocol":
        return MessageReader(unframed, _checked(_open))
    if name == "simple":
        return MessageReader(_alone, _checked(_simple), keyed=False)
    if name == "debezium":
        return MessageReader(
            _alone, _checked(_debezium), keyed=protocol.enable_tidb_extension, dated=False, numbered=False
        )
    if name == "canal-json":
        if protocol.enable_tidb_extension:
            return MessageReader(_alone, _checked(_canal))
        return "canal-json has no commit_ts in its messages: enable-tidb-extension=true of the sink URI adds it"
    return f"messages of {name} are not compared: open-protocol, canal-json, debezium and simple are"


def unframed(message: Pair) -> Sequence[Pair]:
    """Divide a message of open-protocol into its events, as (key, value). Raises Unreadable."""
    key, value = message
    keys, values = list(_pieces((key or b"")[_WORD:])), list(_pieces(value or b""))
    if len(keys) != len(values):
        raise Unreadable(f"a message has {len(keys)} keys and {len(values)} values")
    return list(zip(keys, values, strict=True))


def _pieces(data: bytes) -> Sequence[bytes]:
    out, at = [], 0
    while at < len(data):
        end = at + _WORD + int.from_bytes(data[at : at + _WORD])
        if end > len(data):
            raise Unreadable("a message ends inside an event")
        out.append(data[at + _WORD : end])
        at = end
    return out


def _alone(message: Pair) -> Sequence[Pair]:
    return (message,)


def _checked(head: HeadOf) -> HeadOf:
    def found(pair: Pair) -> MessageHead | ResolvedHead | None:
        try:
            return head(pair)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise Unreadable(f"a message is not of the protocol ({type(error).__name__})") from error

    return found


def _open(pair: Pair) -> MessageHead | ResolvedHead | None:
    key = orjson.loads(pair[0] or b"")
    if key["t"] == _RESOLVED:
        return ResolvedHead(int(key["ts"]))
    if key["t"] != _ROW:
        return None
    body = orjson.loads(pair[1] or b"")
    columns = body.get("u") or body.get("d") or {}
    named = {name: column.get("v") for name, column in columns.items() if column.get("h")}
    return MessageHead(int(key["ts"]), str(key["scm"]), str(key["tbl"]), named)


def _canal(pair: Pair) -> MessageHead | ResolvedHead | None:
    value = orjson.loads(pair[1] or b"")
    extension = value["_tidb"]
    if "watermarkTs" in extension:
        return ResolvedHead(int(extension["watermarkTs"]))
    if value["isDdl"]:
        return None
    row = value["data"][0]
    named = {name: row.get(name) for name in value["pkNames"] or ()}
    return MessageHead(int(extension["commitTs"]), str(value["database"]), str(value["table"]), named)


def _simple(pair: Pair) -> MessageHead | ResolvedHead | None:
    value = orjson.loads(pair[1] or b"")
    kind = value["type"]
    if kind == "WATERMARK":
        return ResolvedHead(int(value["commitTs"]))
    if kind not in ("INSERT", "UPDATE", "DELETE"):
        return None
    return MessageHead(int(value["commitTs"]), str(value["database"]), str(value["table"]), {})


def _debezium(pair: Pair) -> MessageHead | ResolvedHead | None:
    value = orjson.loads(pair[1] or b"")
    payload = value.get("payload", value)
    source, kind = payload["source"], payload.get("op")
    if kind == "m":
        return ResolvedHead(int(source["commit_ts"]))
    if kind not in ("c", "u", "d"):
        return None
    key = orjson.loads(pair[0] or b"{}")
    named = dict(key.get("payload", key))
    return MessageHead(int(source["commit_ts"]), str(source["db"]), str(source["table"]), named)
